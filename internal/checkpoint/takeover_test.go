package checkpoint_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// open is a fence that always passes.
func open(context.Context) error { return nil }

// takeOver returns a keeper that has taken over the content of s, as the leader of that epoch of
// the election.
func takeOver(t *testing.T, s checkpoint.Store, epoch uint64) (*checkpoint.Keeper, uint64) {
	t.Helper()
	k := checkpoint.NewKeeper(s, us, slog.New(slog.DiscardHandler), nil)
	epoch, err := k.TakeOver(t.Context(), epoch, open)
	if err != nil {
		t.Fatal(err)
	}
	return k, epoch
}

func TestTakeOver(t *testing.T) {
	s := newAPIServer(t)
	first, epoch := takeOver(t, s.store(t), 2)
	if epoch != 2 || len(first.Scopes()) != 0 || !first.Saved().IsZero() {
		t.Errorf("epoch %d, %v", epoch, first.Scopes())
	}
	if d, err := checkpoint.Read(t.Context(), s.store(t)); err != nil || d == nil || d.Epoch != 2 {
		t.Fatalf("before anything is published: %+v, %v", d, err)
	}
	pods := informerAt(10, 10)
	first.Track("pods", pods.position, nil)
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}

	second, epoch := takeOver(t, s.store(t), 3)
	if d := cmp.Diff(map[string]uint64{"pods": 10}, rvs(second.Scopes())); epoch != 3 || d != "" {
		t.Errorf("epoch %d\n%s", epoch, d)
	}
	pods.set(20, 20)
	if err := first.Flush(t.Context()); !errors.Is(err, checkpoint.ErrEpoch) {
		t.Errorf("the leader before saves: %v", err)
	}
	if err := first.Close(t.Context()); err != nil { // Run has returned the reason
		t.Error(err)
	}
	there, err := checkpoint.Read(t.Context(), s.store(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]uint64{"pods": 10}, rvs(there.Scopes)); there.Epoch != 3 || d != "" {
		t.Errorf("epoch %d\n%s", there.Epoch, d)
	}
	second.Track("pods", pods.position, nil)
	if err := second.Flush(t.Context()); err != nil {
		t.Error(err)
	}

	// The Lease was deleted, and the election counts from one again.
	_, epoch = takeOver(t, s.store(t), 1)
	if epoch != 4 {
		t.Errorf("epoch %d", epoch)
	}
	// Election is turned off, and on again.
	alone := newKeeper(t, s.store(t))
	pods.set(30, 30)
	alone.Track("pods", pods.position, nil)
	if err := alone.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if again, epoch := takeOver(t, s.store(t), 1); epoch != 5 || again.Scopes()["pods"].ResourceVersion != 30 {
		t.Errorf("epoch %d, %v", epoch, again.Scopes())
	}
}

// behind runs a function before the first save.
type behind struct {
	checkpoint.Store
	happen func()
}

func (b *behind) Save(ctx context.Context, data []byte) error {
	if happen := b.happen; happen != nil {
		b.happen = nil
		happen()
	}
	return b.Store.Save(ctx, data)
}

// A late save of the previous leader during the takeover is either read by the next leader, or
// refused.
func TestTakeOverMeetsALateSave(t *testing.T) {
	s := newAPIServer(t)
	first, _ := takeOver(t, s.store(t), 1)
	pods := informerAt(10, 10)
	first.Track("pods", pods.position, nil)
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := &behind{Store: s.store(t), happen: func() {
		pods.set(20, 20)
		if err := first.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	}}
	second, epoch := takeOver(t, store, 2)
	if rv := second.Scopes()["pods"].ResourceVersion; epoch != 2 || rv != 20 {
		t.Errorf("epoch %d, at %d", epoch, rv)
	}
	pods.set(30, 30)
	if err := first.Flush(t.Context()); !errors.Is(err, checkpoint.ErrEpoch) {
		t.Errorf("the leader before saves: %v", err)
	}
}

// slowLook runs a function before each read.
type slowLook struct {
	checkpoint.Store
	happen func()
}

func (s *slowLook) Load(ctx context.Context) ([]byte, error) {
	s.happen()
	return s.Store.Load(ctx)
}

// A leader that stood still during its takeover, and reads after another one has taken over, leaves
// the checkpoint to that one. By its epoch alone, the checkpoint could belong to a deleted Lease.
func TestTakeOverByALeaderNoMore(t *testing.T) {
	s := newAPIServer(t)
	errLost := errors.New("no longer the leader")
	var second *checkpoint.Keeper
	store := &slowLook{Store: s.store(t), happen: func() { second, _ = takeOver(t, s.store(t), 6) }}
	fence := func(context.Context) error {
		if second != nil {
			return errLost
		}
		return nil
	}
	first := checkpoint.NewKeeper(store, us, slog.New(slog.DiscardHandler), nil)
	if epoch, err := first.TakeOver(t.Context(), 5, fence); !errors.Is(err, errLost) {
		t.Errorf("epoch %d, %v", epoch, err)
	}
	second.Track("pods", informerAt(10, 10).position, nil)
	if err := second.Flush(t.Context()); err != nil {
		t.Errorf("who leads saves: %v", err)
	}
}

// A takeover waits for a store that is unavailable; the epoch counts only once it is saved.
func TestTakeOverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		m.lose(errors.New("connection reset"))
		type result struct {
			epoch uint64
			err   error
		}
		done := make(chan result, 1)
		k := checkpoint.NewKeeper(m, us, slog.New(slog.DiscardHandler), nil)
		go func() {
			epoch, err := k.TakeOver(t.Context(), 7, open)
			done <- result{epoch, err}
		}()
		synctest.Wait()
		select {
		case r := <-done:
			t.Fatalf("%+v before it is saved", r)
		default:
		}
		if s := k.State(); s.Trouble == nil || s.Trouble.Error() != "connection reset" {
			t.Errorf("the state has %v as the reason of the wait", s.Trouble)
		}
		m.lose(nil)
		if r := <-done; r.epoch != 7 || r.err != nil {
			t.Errorf("%+v", r)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("told to stop"))
		m.fail(errors.New("away"))
		if _, err := checkpoint.NewKeeper(m, us, slog.New(slog.DiscardHandler), nil).
			TakeOver(ctx, 8, open); err == nil || err.Error() != "told to stop" {
			t.Errorf("after the end of ctx: %v", err)
		}
	})
}

// Agents that live for only two seconds still make progress, even if only resourceVersions move.
func TestShortLivedAgentsComeForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for i := range uint64(5) {
			k := newKeeper(t, m)
			stop := run(t, k)
			if got := k.Scopes()["pods"].ResourceVersion; i > 0 && got != i {
				t.Fatalf("agent %d begins at %d, want %d, where the one before it was", i, got, i)
			}
			k.Track("pods", informerAt(i+1, 0).position, nil)
			<-time.After(2 * time.Second)
			_ = stop() // and it is not closed: the agent was killed
			m.locked = false
		}
	})
}
