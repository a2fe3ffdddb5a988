package publish_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// A stale broker reports the previous log after an acknowledgement has revealed the replacement:
// that is not a second replacement.
func TestLogIsReplacedOnceBesideABrokerThatLags(t *testing.T) {
	l, replaced := publish.NewLog("x"), 0
	l.OnReplaced(func(string, string) { replaced++ })
	l.Looked("old")
	l.NoteRepeatedPosition()
	if !l.Looked("old") {
		t.Error("the identity of the log before is taken at once")
	}
	l.Looked("new")
	if replaced != 1 {
		t.Errorf("replaced %d times, want once", replaced)
	}
	if known := l.Known(); len(known) != 1 || known[0].ID != "new" {
		t.Errorf("known: %+v", known)
	}
}
