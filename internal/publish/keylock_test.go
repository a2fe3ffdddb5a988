package publish_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// One at a time has a key, and nothing is kept of a key that nobody has or waits for.
func TestKeyLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l publish.KeyLock
		first, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, giveUp := context.WithCancel(t.Context())
		gaveUp, second := make(chan error), make(chan func())
		go func() {
			_, err := l.Lock(ctx, "a")
			gaveUp <- err
		}()
		go func() {
			unlock, err := l.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			second <- unlock
		}()
		synctest.Wait()
		giveUp()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
		select {
		case <-second:
			t.Error("two have the key")
		default:
		}
		if n := l.Kept(); n != 1 {
			t.Errorf("%d keys are kept, want 1", n)
		}
		first()
		(<-second)()
		if n := l.Kept(); n != 0 {
			t.Errorf("%d keys are kept, want none", n)
		}
	})
}
