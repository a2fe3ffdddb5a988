package discovery_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
)

// written is a pattern as in a configuration. Without a group, it matches in every group unless it
// is own.
type written struct {
	text string
	own  bool // a name that Kubernetes itself serves
}

func (w written) String() string { return w.text }

func (w written) Match(group, version, resource string) bool {
	name, _, _ := strings.Cut(w.text, ".")
	return group != "" && version == "v1" && !w.own && (name == "*" || name == resource)
}

func TestTakesExtensions(t *testing.T) {
	for _, test := range []struct {
		pattern written
		want    bool
	}{
		{written{text: "*"}, true},
		{written{text: "widgets"}, true},
		{written{text: "widgets.example.com"}, true},
		{written{text: "widgets.v1.example.com"}, true},
		{written{text: "*.example.com"}, true},
		{written{text: "gateways.gateway.networking.k8s.io"}, true},
		{written{text: "pods", own: true}, false},
		{written{text: "pods.v1."}, false},
		{written{text: "deployments.apps"}, false},
		{written{text: "deployments.v1.apps"}, false},
		{written{text: "*.networking.k8s.io"}, false},
	} {
		if got := discovery.TakesExtensions(test.pattern); got != test.want {
			t.Errorf("TakesExtensions(%s) = %t, want %t", test.pattern, got, test.want)
		}
	}
}
