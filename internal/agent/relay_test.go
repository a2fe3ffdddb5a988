package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestRelayMatchesWhatItIsToldTo(t *testing.T) {
	parse := func(text string) *consume.Event {
		e, err := consume.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	object := func(apiVersion, resource, namespace, verb string) *consume.Event {
		return parse(
			fmt.Sprintf(
				`{"specversion":"1.0","id":"i","source":"/kubernetes/prod","type":"dev.kubecdc.object.%s","cluster":"prod","apiversion":%q,"resource":%q,"namespace":%q,"name":"n","uid":"u","op":%q,"data":{"op":%q,"resourceVersion":"1"}}`,
				verb, apiVersion, resource, namespace, verb[:1], verb[:1]))
	}
	progress := parse(
		`{"specversion":"1.0","id":"i","source":"/kubernetes/prod","type":"dev.kubecdc.progress","cluster":"prod","apiversion":"apps/v1","resource":"deployments","scope":"deployments.apps","data":{"resourceVersion":"1"}}`)
	reported := parse(
		`{"specversion":"1.0","id":"i","source":"/kubernetes/prod","type":"dev.kubecdc.progress","cluster":"prod","data":{"writer":"3f0a","run":"0-1","number":1,"scopes":[]}}`)
	pattern := func(text string) config.ResourcePattern {
		var p config.ResourcePattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	deployments := config.Relay{Resources: []config.ResourcePattern{
		pattern("deployments.apps"),
	}, Namespaces: config.Namespaces{"shop", "team-*", "!team-x"}}
	updates := config.Relay{Operations: []config.Operation{config.OperationOf(consume.Updated)}}
	for _, c := range []struct {
		name    string
		relay   config.Relay
		cluster string
		event   *consume.Event
		want    bool
	}{
		{"all", config.Relay{}, "", object("v1", "pods", "shop", "updated"), true},
		{"the cluster", config.Relay{}, "prod", object("v1", "pods", "shop", "updated"), true},
		{"another cluster", config.Relay{}, "test", object("v1", "pods", "shop", "updated"), false},
		{"resource and namespace", deployments, "", object("apps/v1", "deployments", "team-y", "updated"), true},
		{"another namespace", deployments, "", object("apps/v1", "deployments", "team-x", "updated"), false},
		{"another group", deployments, "", object("other/v1", "deployments", "shop", "updated"), false},
		{"another resource", deployments, "", object("apps/v1", "replicasets", "shop", "updated"), false},
		{"about the stream", deployments, "", progress, true},
		{"an operation", updates, "", object("v1", "pods", "", "updated"), true},
		{"another operation", updates, "", object("v1", "pods", "", "deleted"), false},
		{"about the stream, where operations are named", updates, "", progress, false},
		{"progress of an agent", deployments, "prod", reported, true},
		{"progress of an agent of another cluster", deployments, "test", reported, false},
		{"progress of an agent, where operations are named", updates, "", reported, false},
	} {
		if got := MatchRelay(&c.relay, c.cluster)(c.event); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// partial is a subscription that has the objects of some namespaces.
type partial struct {
	driver.Subscription
	namespaces []string
}

func (p *partial) HasAll(o *consume.Objects) bool { return slices.Contains(p.namespaces, o.Namespace) }

// A relay sends progress only about what its subscription has, and what its target keeps in one
// place.
func TestWholeScopesOfARelay(t *testing.T) {
	kafka := func(topic string) config.RelayTarget {
		b, ok := config.BusOf("kafka://127.0.0.1:9092/"+topic, nil)
		if !ok {
			t.Fatalf("no bus for topic %s", topic)
		}
		return config.RelayTarget(b)
	}
	for _, c := range []struct {
		name            string
		relay           config.Relay
		sub             driver.Subscription
		resource, scope string
		want            bool
	}{
		{"all", config.Relay{To: kafka("k.{cluster}")}, nil, "pods", "", true},
		{"a topic for each namespace", config.Relay{To: kafka("k.{namespace}")}, nil, "pods", "pods/shop", false},
		{"what the relay selects", config.Relay{To: kafka("k"), Namespaces: config.Namespaces{
			"shop",
		}}, nil, "pods", "", false},
		{"a subscription of one namespace", config.Relay{To: kafka("k")}, &partial{namespaces: []string{
			"shop",
		}}, "pods", "pods/shop", true},
		{"a subscription of another namespace", config.Relay{To: kafka("k")}, &partial{namespaces: []string{
			"shop",
		}}, "pods", "pods/bank", false},
		{"a subscription of one of the namespaces", config.Relay{To: kafka("k")}, &partial{namespaces: []string{
			"shop",
		}}, "pods", "pods/shop,bank", false},
		{"a subscription of one namespace, all scopes", config.Relay{To: kafka("k")}, &partial{namespaces: []string{
			"shop",
		}}, "pods", "", false},
		{"a subscription of all", config.Relay{To: kafka("k")}, &partial{namespaces: []string{""}}, "pods", "", true},
	} {
		if got := wholeOf(&c.relay, c.sub)(c.resource, c.scope); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
