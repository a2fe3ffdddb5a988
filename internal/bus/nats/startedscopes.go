package nats

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// clocksDiffer is how much earlier the clock of the server, which dates records, may be than the
// agent's.
const clocksDiffer = 2 * time.Minute

// StartedScopes implements driver.ScopeLister. It asks the stream's leader for each stream event of
// the resource since the run began, and needs the permission of LastStreamEvent.
func (b *Bus) StartedScopes(
	ctx context.Context, r *object.Resource, writer, run string,
) ([]publish.StartedScope, error) {
	began := consume.RunBegan(run)
	if began.IsZero() {
		return nil, nil
	}
	var starts driver.Starts
	// Starts and ends of scopes decide, so they are read after the snapshots.
	for _, subject := range b.subjects.OfStream(r) {
		events, err := askStream(ctx, b, subject, func(ctx context.Context) (events []*consume.Event, err error) {
			err = b.eachSince(ctx, subject, began.Add(-clocksDiffer), func(record *nats.RawStreamMsg) {
				e, err := consume.FromMessage(record.Header, record.Data)
				if err != nil {
					b.log.Debug("a stream event cannot be used", "subject", subject, "sequence", record.Sequence, "err",
						err)
					return
				}
				events = append(events, e)
			})
			return events, err
		})
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			starts.Add(e, writer, run)
		}
	}
	return starts.Scopes(), nil
}
