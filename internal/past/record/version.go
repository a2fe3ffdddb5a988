package record

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// versionSaidEvery is how often a progress of an agent has the version of the API server, and some
// time for it to come.
const versionSaidEvery = 65 * time.Minute

// APIServerVersion returns the version of the API server at a moment, as
// timeline.State.APIServerVersion, from progress alone. The reading of a state begins at a
// snapshot, and so may not have the progress that says it. It returns "" if none says it, or if the
// source cannot omit other events.
func (r *Record) APIServerVersion(ctx context.Context, s *Selection, at timeline.Moment) (string, error) {
	if !r.Seeks() {
		return "", nil
	}
	start := consume.Beginning() // when a resourceVersion was reached is not known
	if t := at.Time(); !t.IsZero() {
		start = consume.Since(t.Add(-versionSaidEvery))
	}
	fold := timeline.NewFold(at, timeline.Options{})
	query := consume.Query{Objects: s.objects(), Events: consume.ProgressEvents, Start: start}
	_, err := r.read(ctx, query, nil, s.taken(), func(e *consume.Event) (bool, error) {
		fold.Add(e)
		return fold.APIServerVersion() != "" && !at.Includes(e), nil
	})
	return fold.APIServerVersion(), err
}
