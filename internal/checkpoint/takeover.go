package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubecdc/kubecdc/internal/retry"
)

// Check is the error with which Load or TakeOver would refuse what is kept now. It locks nothing and changes nothing, neither what is
// kept nor the keeper: it is for an agent that stands by. What may pass it retries until ctx ends; everything else is an *Error.
func (k *Keeper) Check(ctx context.Context) error {
	k.id.Epoch = math.MaxUint64 // any leader may have written it
	_, err := k.read(ctx)
	return err
}

// TakeOver is Load for an agent that has been elected: it takes the checkpoint from whoever had it, and returns its epoch, which is
// greater than that of all before it. That is saved before TakeOver returns, so that a save of the leader before meets a conflict,
// finds the epoch, and is refused (ErrEpoch), also one that is on its way. epoch is what the election gives; where the checkpoint
// knows a later one (somebody has deleted the Lease) it goes on from there.
//
// pass is the fence of the elected: what it returns but nil ends TakeOver. It is asked between the look at the checkpoint and the save,
// which needs that nobody has saved in between. So a leader that stood still, and finds the epoch of the one after it, does not take
// that for an old one, and the checkpoint away from whoever leads.
func (k *Keeper) TakeOver(ctx context.Context, epoch uint64, pass func(context.Context) error) (uint64, error) {
	b := newBackoff()
	for {
		k.loaded, k.loadedLogs, k.loadedEpoch, k.saved, k.positions = nil, nil, 0, time.Time{}, map[string]Position{}
		if err := k.load(ctx); err != nil {
			return 0, err
		}
		if err := pass(ctx); err != nil {
			return 0, errors.Join(err, k.unlock())
		}
		k.id.Epoch = max(epoch, k.loadedEpoch+1)
		if err := k.claim(ctx); err == nil {
			k.log.Info("the checkpoint is this leader's", "epoch", k.id.Epoch, "epoch_before", k.loadedEpoch)
			return k.id.Epoch, nil
		} else if err := errors.Join(err, k.unlock()); !errors.Is(err, ErrConflict) {
			return 0, err
		}
		// The leader before has saved in between. What it has saved is true, and more than we have read.
		if !retry.Sleep(ctx, b.Step()) {
			return 0, context.Cause(ctx)
		}
	}
}

// claim saves what was loaded under the new epoch. What may pass it retries until ctx ends; ErrConflict: something else is there.
func (k *Keeper) claim(ctx context.Context) error {
	b := newBackoff()
	for {
		k.saver.attempts++
		d := Document{
			FormatVersion: FormatVersion, Identity: k.id, Writer: k.writer, Save: k.saver.attempts,
			Saved: time.Now().UTC().Truncate(time.Second), Logs: k.loadedLogs, Scopes: k.loaded,
		}
		if d.Scopes == nil {
			d.Scopes = map[string]Scope{}
		}
		data, err := d.Encode()
		if err != nil {
			return err
		}
		if err = k.store.Save(ctx, data); err == nil {
			k.wrote(&d, len(data))
			return nil
		}
		if e := new(Error); errors.As(err, &e) {
			return err // a conflict may be with an attempt of our own: what is read then has our epoch, and is taken over again
		}
		k.metrics.saves.WithLabelValues("error").Inc()
		delay := b.Step()
		if ctx.Err() == nil {
			k.warn(ctx, "take over", err, delay)
		}
		if !retry.Sleep(ctx, delay) {
			return fmt.Errorf("take over the checkpoint: %w: %w", context.Cause(ctx), err)
		}
	}
}
