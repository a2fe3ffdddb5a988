package history

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Query returns the query of what the state at a moment needs, for the objects of a selection, and of all that follows it up to the end of
// the record. It also returns what is known of the resources whose resourceVersions are of another etcd than those of from and to. Of a source
// that cannot seek, the caller notes the events that it reads.
func (r *Record) Query(ctx context.Context, s *Selection, from, to timeline.Moment) (consume.Query, *timeline.Histories, error) {
	histories, err := r.histories(ctx, s, from, to)
	if err != nil {
		return consume.Query{}, nil, err
	}
	start, err := r.start(ctx, s, []timeline.Moment{from})
	return consume.Query{Objects: s.objects(), Start: start, StopAtEnd: true, OnRetry: r.OnRetry, OnResume: r.OnResume}, histories, err
}
