package relay_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// saves is a subscription that reports how many marks each Save has.
type saves struct {
	memory
	marks chan int // unbuffered: the test takes each
}

func (s *saves) Save(_ context.Context, marks []driver.Mark) error {
	s.marks <- len(marks)
	return nil
}

// Saved marks are not saved again: another relay of this name may have advanced further, or the
// topic may have been recreated. The relay still checks that it holds the cursor.
func TestMarksThatHaveNotMovedAreNotSavedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &saves{
			memory: memory{records: []*driver.Record{copyOf(t, 0, 1, 7, event("shop", "web", 1))}},
			marks:  make(chan int),
		}
		r := start(t, relay.Options{Name: "r", Subscription: src, Target: newTarget()})
		got := []int{<-src.marks, <-src.marks, <-src.marks}
		if diff := cmp.Diff([]int{1, 0, 0}, got); diff != "" {
			t.Errorf("marks of the first saves (-want +got):\n%s", diff)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
