package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// reasonClaim counts attempts to put the whole of an event aside that failed and are made again.
const reasonClaim = "claim_store"

// claimRetry is what the claim stores have in common: attempts until one succeeds.
type claimRetry struct {
	where   string // for the log and for errors; no secrets
	log     *slog.Logger
	metrics *Metrics
	window  window
}

func newClaimRetry(where string, log *slog.Logger, m *Metrics) *claimRetry {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &claimRetry{where: where, log: log, metrics: m}
}

// do calls attempt until it returns nil, an error that wraps ErrRefused, ErrClosed or ErrFenced, or ctx ends.
func (r *claimRetry) do(ctx context.Context, name string, attempt func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		err := attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrRefused), errors.Is(err, ErrClosed), errors.Is(err, ErrFenced):
			return fmt.Errorf("put %s into %s: %w", name, r.where, err)
		case errors.Is(err, errShut):
			continue // the attempt waits at the fence
		}
		r.metrics.retries.WithLabelValues(reasonClaim).Inc()
		noteFailure(ctx, reasonClaim)
		if suppressed, ok := r.window.first("claim"); ok {
			r.log.Error("the claim store does not take an event that is too large for the bus, its object waits", "store", r.where,
				"object", name, "attempt", failures, "err", err, "suppressed", suppressed)
		}
		if err := sleep(ctx, busyBackoff().delay(failures)); err != nil {
			return err
		}
	}
}
