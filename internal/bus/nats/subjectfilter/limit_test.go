package subjectfilter_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A reader has all of the wanted events only if its subjects certainly include all of theirs.
func TestLimit(t *testing.T) {
	t.Parallel()
	shop := []string{
		"kubecdc.*.object.*.*.shop.*", "kubecdc.*.stream.*.*", "kubecdc.*.scope.*.*.*", "kubecdc.*.progress.*",
	}
	inProd := []string{
		"kubecdc.prod.object.*.*.shop.*", "kubecdc.prod.stream.*.*", "kubecdc.prod.scope.*.*.*",
		"kubecdc.prod.progress.>",
	}
	pods := func(namespace string) consume.Objects {
		return consume.Objects{Groups: []string{""}, Resource: "pods", Namespace: namespace}
	}
	for _, c := range []struct {
		name      string
		subjects  []string
		template  string
		objects   []consume.Objects
		events    consume.Events
		cluster   string
		some, all bool
	}{
		{"its namespace", shop, "", []consume.Objects{pods("shop")}, consume.AllEvents, "", true, true},
		{"an object of it", shop, "", []consume.Objects{{
			Resource:  "pods",
			Namespace: "shop",
			Name:      "web",
		}}, consume.AllEvents, "", true, true},
		{"all of it", shop, "", []consume.Objects{{Namespace: "shop"}}, consume.AllEvents, "prod", true, true},
		{"another namespace", shop, "", []consume.Objects{pods("bank")}, consume.AllEvents, "", false, false},
		{"a longer name", shop, "", []consume.Objects{pods("shop2")}, consume.AllEvents, "", false, false},
		{"both", shop, "", []consume.Objects{pods("shop"), pods("bank")}, consume.AllEvents, "", true, false},
		{"all namespaces", shop, "", []consume.Objects{pods("")}, consume.AllEvents, "", true, false},
		{"everything", shop, "", nil, consume.AllEvents, "", true, false},
		{"no namespace", shop, "", []consume.Objects{pods(consume.NoNamespace)}, consume.AllEvents, "", false, false},
		{"stream events", shop, "", []consume.Objects{pods("bank")}, consume.StreamEvents, "", true, true},
		{"no stream events", shop[:1], "", []consume.Objects{pods("shop")}, consume.AllEvents, "", true, false},
		{"no stream events are wanted", shop[:1], "", []consume.Objects{
			pods("shop"),
		}, consume.ObjectEvents, "", true, true},
		{"no progress", shop[:2], "", []consume.Objects{pods("shop")}, consume.AllEvents, "", true, false},
		{"stream events without progress", shop[1:2], "", []consume.Objects{
			pods("shop"),
		}, consume.StreamEvents, "", true, false},
		{"only stream events", shop[1:], "", []consume.Objects{pods("shop")}, consume.AllEvents, "", false, false},
		{"any cluster", inProd, "", []consume.Objects{pods("shop")}, consume.AllEvents, "", true, false},
		{"its cluster", inProd, "", []consume.Objects{pods("shop")}, consume.AllEvents, "prod", true, true},
		{"another cluster", inProd, "", []consume.Objects{pods("shop")}, consume.AllEvents, "test", false, false},
		{"a tail", []string{"kubecdc.>"}, "", nil, consume.AllEvents, "", true, true},
		{"a short template", []string{
			"k.*.shop", "kubecdc.*.stream.*.*", "kubecdc.*.scope.*.*.*", "kubecdc.*.progress.*",
		}, "k.{cluster}.{namespace}", []consume.Objects{pods("shop")}, consume.AllEvents, "", true, true},
		{"a template without namespaces", []string{
			"k.*.pods", "kubecdc.*.stream.*.*", "kubecdc.*.scope.*.*.*", "kubecdc.*.progress.*",
		}, "k.{cluster}.{resource}", []consume.Objects{pods("shop")}, consume.AllEvents, "", true, true},
		{"another template", shop, "k.{cluster}.{namespace}", []consume.Objects{
			pods("shop"),
		}, consume.AllEvents, "", false, false},
	} {
		l, err := subjectfilter.NewLimit(c.template, c.subjects)
		if err != nil {
			t.Fatal(err)
		}
		if some, all := l.Reads(c.objects, c.events, c.cluster); some != c.some || all != c.all {
			t.Errorf("%s: some %t, all %t", c.name, some, all)
		}
	}
}
