package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// Retry repeats the attempts to store a claim. Each claim store has one.
type Retry struct {
	where   string
	Log     *slog.Logger
	metrics *publish.Metrics
	window  publish.Window
}

// NewRetry returns a Retry for the claim store at where, which is logged and must not contain a secret.
func NewRetry(where string, log *slog.Logger, m *publish.Metrics) *Retry {
	return &Retry{where: where, Log: log, metrics: cmp.Or(m, publish.NewMetrics(nil))}
}

// Do calls attempt until it returns nil, an error that wraps publish.ErrRefused, publish.ErrClosed or publish.ErrFenced, or ctx ends.
func (r *Retry) Do(ctx context.Context, name string, attempt func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		err := attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, publish.ErrRefused), errors.Is(err, publish.ErrClosed), errors.Is(err, publish.ErrFenced):
			return fmt.Errorf("put %s into %s: %w", name, r.where, err)
		case errors.Is(err, publish.ErrShut):
			continue // the attempt waits at the fence
		}
		r.metrics.Retries.WithLabelValues(publish.ReasonClaim).Inc()
		publish.NoteFailure(ctx, publish.ReasonClaim)
		if suppressed, ok := r.window.First("claim"); ok {
			r.Log.Error("the claim store rejects an event that is too large for the bus: later changes of its object wait", "store", r.where,
				"object", name, "attempt", failures, "err", err, "suppressed", suppressed)
		}
		if err := publish.Sleep(ctx, publish.BusyBackoff().Delay(failures)); err != nil {
			return err
		}
	}
}
