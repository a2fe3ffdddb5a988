package record

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Query returns the query for the events that the state at from needs, for the objects of a
// selection, and for all later events of the record. It also returns the resources whose
// resourceVersions belong to another etcd than those of from and to. If the source cannot seek, the
// caller must note the events that it reads.
func (r *Record) Query(
	ctx context.Context, s *Selection, from, to timeline.Moment,
) (consume.Query, *timeline.Etcds, error) {
	etcds, err := r.readEtcds(ctx, s, from, to)
	if err != nil {
		return consume.Query{}, nil, err
	}
	start, _, err := r.findStart(ctx, s, []timeline.Moment{from}, etcds) // the query continues after the moment
	q := consume.Query{
		Objects:   s.objects(),
		Cluster:   r.Cluster,
		Start:     start,
		StopAtEnd: true,
		OnRetry:   r.OnRetry,
		OnResume:  r.OnResume,
	}
	return q, etcds, err
}
