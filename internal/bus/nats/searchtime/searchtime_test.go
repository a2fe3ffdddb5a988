package searchtime_test

import (
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/searchtime"
)

func TestFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		messages, bytes uint64
		want            time.Duration
	}{
		{0, 0, 0},
		{1, 500, 79 * time.Microsecond},
		{20_000, 0, time.Second},
		{845_000, 1 << 30, 106_250 * time.Millisecond},
		{10_000_000, 20 << 30, searchtime.Most},
		{math.MaxUint64, math.MaxUint64, searchtime.Most},
	} {
		got := searchtime.For(&jetstream.StreamState{Msgs: c.messages, Bytes: c.bytes})
		if got.Truncate(time.Microsecond) != c.want {
			t.Errorf("%d messages, %d bytes: %s, want %s", c.messages, c.bytes, got, c.want)
		}
	}
}
