package history

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Query returns the query of what the state at a moment needs, for the objects of a selection, and of all that follows it up to the end of
// the record.
func (r *Record) Query(ctx context.Context, s *Selection, m timeline.Moment) (consume.Query, error) {
	start, err := r.start(ctx, s, []timeline.Moment{m})
	return consume.Query{Objects: s.objects(), Start: start, StopAtEnd: true, OnRetry: r.OnRetry, OnResume: r.OnResume}, err
}
