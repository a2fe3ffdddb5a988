package agent

import (
	"fmt"
	"testing"

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
		return parse(fmt.Sprintf(`{"specversion":"1.0","id":"i","source":"/kubernetes/prod","type":"dev.kubecdc.object.%s","cluster":"prod","apiversion":%q,"resource":%q,"namespace":%q,"name":"n","uid":"u","op":%q,"data":{"op":%q,"resourceVersion":"1"}}`,
			verb, apiVersion, resource, namespace, verb[:1], verb[:1]))
	}
	progress := parse(`{"specversion":"1.0","id":"i","source":"/kubernetes/prod","type":"dev.kubecdc.progress","cluster":"prod","apiversion":"apps/v1","resource":"deployments","scope":"deployments.apps","data":{"resourceVersion":"1"}}`)
	pattern := func(text string) config.ResourcePattern {
		var p config.ResourcePattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	deployments := config.Relay{Resources: []config.ResourcePattern{pattern("deployments.apps")}, Namespaces: config.Namespaces{"shop", "team-*", "!team-x"}}
	updates := config.Relay{Operations: []config.Operation{config.Updated}}
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
	} {
		if got := MatchRelay(&c.relay, c.cluster)(c.event); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
