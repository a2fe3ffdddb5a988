package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/pause"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := pause.For(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("waited for %s: %v", time.Since(begin), err)
		}
		stopped := errors.New("stopped")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(stopped) })
		begin = time.Now()
		if err := pause.For(ctx, time.Minute); !errors.Is(err, stopped) || time.Since(begin) != time.Second {
			t.Errorf("waited for %s: %v", time.Since(begin), err)
		}
		if err := pause.For(ctx, 0); !errors.Is(err, stopped) {
			t.Errorf("no pause after the end: %v", err)
		}
		if err := pause.For(t.Context(), -time.Second); err != nil {
			t.Errorf("no pause: %v", err)
		}
	})
}
