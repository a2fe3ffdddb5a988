package consume_test

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A name without an order must not make a reader ignore a run: the later record counts.
func TestRunsAreOrderedByEpochAndBegin(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"9-1795186799000", "10-1795186799000", -1},
		{"10-1795186799000", "9-1795186899000", 1},
		{"0-999999999999", "0-1795186799000", -1},
		{"3-1795186799000", "3-1795186799000", 0},
		{"", "3-1795186799000", 0},
		{"3", "4-1795186799000", 0},
		{"3-", "4-1795186799000", 0},
		{"3-0", "4-1795186799000", -1},
		{"3--5", "4-1795186799000", 0},
		{"3-99999999999999999999", "4-1795186799000", 0},
		{"three-1795186799000", "4-1795186799000", 0},
	} {
		if got := consume.CompareRuns(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := consume.CompareRuns(c.b, c.a); got != -c.want {
			t.Errorf("%q, %q: %d, want %d", c.b, c.a, got, -c.want)
		}
	}
}

func TestRunBegan(t *testing.T) {
	if got, want := consume.RunBegan("3-1795186799123"), time.UnixMilli(1795186799123); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, name := range []string{"", "3", "x-1795186799123", "3-x", "3-99999999999999999999"} {
		if got := consume.RunBegan(name); !got.IsZero() {
			t.Errorf("%q: %v, want none", name, got)
		}
	}
}
