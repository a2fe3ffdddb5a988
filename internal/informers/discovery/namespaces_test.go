package discovery_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
)

func namespace(name, uid string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"$"}}`, name, uid)
}

func TestNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var l log
		n := discovery.NewNamespaces(s.client(t), l.logger())
		s.fail(namespaces, http.StatusForbidden, "Forbidden")
		r := run(t, n.Run)
		r.want(t, "NamespacesUnavailable{}")
		if _, known := n.Names(); known || l.lines() != 1 {
			t.Errorf("known: %t, %d lines; want false, 1", known, l.lines())
		}
		s.list(namespaces, listed(namespace("shop", "1")), listed(namespace("web", "2")))
		pass(6 * time.Minute)
		r.want(t, "NamespacesChanged{}")
		is := func(names []string, created map[string]uint64, absent uint64) {
			t.Helper()
			got, _ := n.Names()
			if diff := cmp.Diff(names, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			for _, name := range append(names, "none") {
				if rv, _ := n.CreatedAt(name); rv != created[name] {
					t.Errorf("%s was created at %d, want %d", name, rv, created[name])
				}
				if _, gone := n.AbsentAt(name); gone != (name == "none") {
					t.Errorf("%s is absent: %t", name, gone)
				}
			}
			if rv, _ := n.AbsentAt("none"); rv != absent {
				t.Errorf("none is absent at %d, want %d", rv, absent)
			}
		}
		is([]string{"shop", "web"}, nil, 100)
		s.send(namespaces, "ADDED", namespace("data", "3"))
		s.send(namespaces, "MODIFIED", namespace("data", "3"))
		r.want(t, "NamespacesChanged{}")
		is([]string{"data", "shop", "web"}, map[string]uint64{"data": 101}, 102)
		s.send(namespaces, "DELETED", namespace("shop", "1"))
		s.send(namespaces, "ADDED", namespace("shop", "4"))
		r.want(t, "NamespacesChanged{}", "NamespacesChanged{}")
		is([]string{"data", "shop", "web"}, map[string]uint64{"data": 101, "shop": 104}, 104)
		// Namespaces are created and deleted while there is no watch.
		s.list(namespaces, listed(namespace("shop", "4")), listed(namespace("data", "5")),
			listed(namespace("more", "6")))
		s.expire(namespaces)
		r.want(t, "NamespacesChanged{}")
		is([]string{"data", "more", "shop"}, map[string]uint64{"shop": 104}, 105)
		n.ForgetCreations()
		is([]string{"data", "more", "shop"}, nil, 105)
	})
}
