package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// ClaimRetry is what the claim stores have in common: attempts until one succeeds.
type ClaimRetry struct {
	where   string // for the log and for errors; no secrets
	Log     *slog.Logger
	metrics *Metrics
	window  Window
}

// NewClaimRetry returns the attempts of the claim store at where, which holds no secrets.
func NewClaimRetry(where string, log *slog.Logger, m *Metrics) *ClaimRetry {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &ClaimRetry{where: where, Log: log, metrics: m}
}

// Do calls attempt until it returns nil, an error that wraps ErrRefused, ErrClosed or ErrFenced, or ctx ends.
func (r *ClaimRetry) Do(ctx context.Context, name string, attempt func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		err := attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrRefused), errors.Is(err, ErrClosed), errors.Is(err, ErrFenced):
			return fmt.Errorf("put %s into %s: %w", name, r.where, err)
		case errors.Is(err, ErrShut):
			continue // the attempt waits at the fence
		}
		r.metrics.Retries.WithLabelValues(ReasonClaim).Inc()
		NoteFailure(ctx, ReasonClaim)
		if suppressed, ok := r.window.First("claim"); ok {
			r.Log.Error("the claim store does not take an event that is too large for the bus, its object waits", "store", r.where,
				"object", name, "attempt", failures, "err", err, "suppressed", suppressed)
		}
		if err := Sleep(ctx, BusyBackoff().Delay(failures)); err != nil {
			return err
		}
	}
}
