package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubecdc/kubecdc/internal/pause"
)

// Check returns the error with which Load or TakeOver would refuse the stored checkpoint. It locks
// and changes nothing: it is for a standby. It retries transient errors until ctx ends; any other
// error is an *Error.
func (k *Keeper) Check(ctx context.Context) error {
	k.id.Epoch = math.MaxUint64 // accept any leader's document
	_, err := k.read(ctx)
	return err
}

// TakeOver is Load for a new leader. It saves and returns the leader's epoch, which is greater than
// all earlier ones. After that, a save by the previous leader, even one in flight, meets a
// conflict, reads the new epoch and fails with ErrEpoch. epoch is the election's; if the checkpoint
// has a later one (the Lease was deleted), TakeOver continues from that.
//
// pass is the leader's fence; its error ends TakeOver. It is called between the read and the save,
// and the save requires that the checkpoint has not changed since the read. So a leader that was
// paused, and reads its successor's epoch, does not mistake it for an old one and take the
// checkpoint from its successor.
func (k *Keeper) TakeOver(ctx context.Context, epoch uint64, pass func(context.Context) error) (uint64, error) {
	b := newBackoff()
	for {
		k.loaded = nil
		k.loadedLogs = nil
		k.loadedEpoch = 0
		k.saved = time.Time{}
		k.positions = map[string]Position{}
		k.loadedTime = time.Time{}
		if err := k.load(ctx); err != nil {
			return 0, err
		}
		if err := pass(ctx); err != nil {
			return 0, errors.Join(err, k.unlock())
		}
		k.id.Epoch = max(epoch, k.loadedEpoch+1)
		if err := k.claim(ctx); err == nil {
			k.log.Info("took over the checkpoint", "epoch", k.id.Epoch, "epoch_before", k.loadedEpoch)
			return k.id.Epoch, nil
		} else if err := errors.Join(err, k.unlock()); !errors.Is(err, ErrConflict) {
			return 0, err
		}
		// The previous leader has saved in between. Its document is valid, and newer than ours.
		if pause.For(ctx, b.Step()) != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// claim saves the loaded scopes under the new epoch. It retries transient errors until ctx ends,
// and fails with ErrConflict if the document has changed.
func (k *Keeper) claim(ctx context.Context) error {
	b := newBackoff()
	for {
		k.saver.attempts++
		d := Document{
			FormatVersion: FormatVersion,
			Identity:      k.id,
			Writer:        k.writer,
			Save:          k.saver.attempts,
			Saved:         time.Now().UTC().Truncate(time.Second),
			Time:          k.pullTime(),
			Logs:          k.loadedLogs,
			Scopes:        k.loaded,
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
			return err // a conflict may be with our own attempt: TakeOver then reads our epoch and takes over again
		}
		k.metrics.saves.WithLabelValues("error").Inc()
		delay := b.Step()
		if ctx.Err() == nil {
			k.warn(ctx, "take over", err, delay)
		}
		if pause.For(ctx, delay) != nil {
			return fmt.Errorf("take over the checkpoint: %w: %w", context.Cause(ctx), err)
		}
	}
}
