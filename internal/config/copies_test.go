package config

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

func TestRelayCopiesWholeScopes(t *testing.T) {
	pattern := func(text string) ResourcePattern {
		var p ResourcePattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	deployments := []ResourcePattern{pattern("deployments.apps")}
	shop := Namespaces{"shop", "team-*", "!team-x"}
	for _, c := range []struct {
		name            string
		relay           Relay
		resource, scope string
		want            bool
	}{
		{"all", Relay{}, "pods", "", true},
		{"a resource", Relay{Resources: deployments}, "deployments.apps", "", true},
		{"another resource", Relay{Resources: deployments}, "pods", "pods/shop", false},
		{"another group", Relay{Resources: deployments}, "deployments.example.com", "", false},
		{"one version of the resource", Relay{Resources: []ResourcePattern{
			pattern("deployments.v1.apps"),
		}}, "deployments.apps", "", false},
		{"operations", Relay{Operations: []Operation{OperationOf(object.Updated)}}, "pods", "", false},
		{"all scopes, where namespaces are named", Relay{Namespaces: shop}, "pods", "", false},
		{"a scope of all namespaces", Relay{Namespaces: shop}, "pods", "pods", false},
		{"a scope of all namespaces, with a selector", Relay{
			Namespaces: shop,
		}, "pods", "pods?labelSelector=a/shop=b", false},
		{"a scope of the namespace", Relay{Namespaces: shop}, "pods", "pods/shop", true},
		{"a scope of the namespace, with a selector", Relay{
			Namespaces: shop,
		}, "pods", "pods/shop?labelSelector=team=payments", true},
		{"a scope of a namespace that a pattern matches", Relay{Namespaces: shop}, "pods", "pods/team-a", true},
		{"a scope of a namespace that is excluded", Relay{Namespaces: shop}, "pods", "pods/team-x", false},
		{"a scope of several namespaces", Relay{Namespaces: shop}, "pods", "pods/shop,team-a", true},
		{"a scope of other namespaces too", Relay{Namespaces: shop}, "pods", "pods/shop,bank", false},
		{"a scope of the same patterns", Relay{
			Namespaces: shop,
		}, "pods", "pods/shop,team-*,!team-x?labelSelector=a=b", true},
		{"a scope of more", Relay{Namespaces: shop}, "pods", "pods/team-?", false},
		{"every namespace is named by a pattern", Relay{Namespaces: Namespaces{"*"}}, "nodes", "", true},
	} {
		if got := c.relay.Copies(c.resource, c.scope); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
