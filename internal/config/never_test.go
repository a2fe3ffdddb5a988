package config_test

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/internal/config"
)

// TestSomethingIsLeft: a rule that excludes only some of its objects is valid, even if its patterns
// look alike.
func TestSomethingIsLeft(t *testing.T) {
	for _, namespaces := range []string{
		`["*", "!kube-*"]`, `["team-*", "!team-?"]`, `["team-*", "!team-a"]`, `[team-a, shop, "!team-*"]`,
		`["*-a", "!team-*"]`, `["team-?", "!team-a"]`,
		`["*", "!*-*"]`, `["?*", "!?"]`,
	} {
		parse(t, "namespaces: "+namespaces)
	}
	for _, selector := range []string{
		"a=1,b=2", "a in (1,2),a in (2,3)", "a in (1,2),a!=1", "a,a!=1", "a!=1,a!=2", "!a,b", "!a,a!=1",
		"a notin (1,2),a=3", "a=1,a==1", "a>1,a=2", "a",
	} {
		parse(t, fmt.Sprintf("labelSelector: %q", selector))
	}
	for _, selector := range []string{
		"metadata.name=a,metadata.namespace=b", "metadata.name=a,metadata.name!=b", "metadata.name!=a,metadata.name!=b",
		"spec.nodeName=", "spec.nodeName!=",
	} {
		parse(t, fmt.Sprintf("fieldSelector: %q", selector))
	}
}

// parse parses a rule for Pods.
func parse(t *testing.T, rule string) {
	t.Helper()
	if _, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nwatch:\n  - resources: [pods]\n    "+rule+"\n"),
		"f"); err != nil {
		t.Error(err)
	}
}
