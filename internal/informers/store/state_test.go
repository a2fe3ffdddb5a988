package store

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// The scope of a removed resource is kept until a replaced log has the gap and the snapshot that
// follow the replacement.
func TestResourceIsGoneAndLogIsReplaced(t *testing.T) {
	staysWhileItOwes(t, func(s *Store) bool { return s.View().Finished })
}

// The scope of a deleted node is kept for as long.
func TestDeletedNodeAndLogIsReplaced(t *testing.T) {
	staysWhileItOwes(t, func(s *Store) bool { return s.View().Empty })
}

func staysWhileItOwes(t *testing.T, ends func(*Store) bool) {
	t.Helper()
	s := New(Options{Resource: &object.Resource{
		Version:    "v1",
		Name:       "configmaps",
		Kind:       "ConfigMap",
		Namespaced: true,
	}, Scope: "configmaps", Now: time.Now})
	s.gone = true
	s.pos.own = true
	s.caughtUp = true
	asIs := ends(s)
	s.log.owed++
	replaced := ends(s)
	s.log.announced, s.snaps.due = s.log.owed, true
	if sweeping := ends(s); !asIs || replaced || sweeping {
		t.Errorf("ends as it is: %t, while its log was replaced: %t, while a snapshot is to follow: %t", asIs, replaced,
			sweeping)
	}
}
