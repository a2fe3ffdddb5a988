package publish_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// A broker that lags behind reports the log before after the replacement was noticed by an acknowledgement: that is no second one.
func TestLogIsReplacedOnceBesideABrokerThatLags(t *testing.T) {
	l, replaced := publish.NewLog("x"), 0
	l.OnReplaced(func(string, string) { replaced++ })
	l.Looked("old")
	l.WentBack()
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
