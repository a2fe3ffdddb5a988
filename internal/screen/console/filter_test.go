package console_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func object(apiVersion, kind, resource, namespace, name string) *consume.Event {
	return &consume.Event{
		Type:       "dev.kubecdc.object.updated",
		Op:         consume.Updated,
		APIVersion: apiVersion,
		Kind:       kind,
		Resource:   resource,
		Namespace:  namespace,
		Name:       name,
		Data: &consume.Data{
			Op: consume.Updated, Before: []byte(`{"metadata":{"labels":{"app":"old"}}}`),
			After: []byte(
				`{"kind":"x","metadata":{"name":"labels","labels":{"tier":"db","app":"web\u0031","empty":""}}}`),
		},
	}
}

func TestFilter(t *testing.T) {
	web := object("apps/v1", "Deployment", "deployments", "shop", "web")
	pod := object("v1", "Pod", "pods", "shop", "web-0")
	node := object("v1", "Node", "nodes", "", "n1")
	knative := object("serving.knative.dev/v1", "Service", "services", "shop", "web")
	service := object("v1", "Service", "services", "shop", "web")
	widget := object("demo.example.com/v1alpha1", "Widget", "widgets", "other", "w")
	events1 := object("events.k8s.io/v1", "Event", "events", "shop", "e")
	deleted := object("v1", "Pod", "pods", "shop", "web-9")
	deleted.Op = consume.Deleted
	deleted.Data = &consume.Data{
		Op:     consume.Deleted,
		Before: []byte(`{"metadata":{"labels":{"app":"old"}}}`),
		After:  []byte("null"),
	}
	gap := &consume.Event{Type: consume.TypeGap, APIVersion: "v1", Resource: "pods", Stream: &consume.Stream{}}
	started := &consume.Event{
		Type:       consume.TypeSnapshotStarted,
		APIVersion: "v1",
		Resource:   "pods",
		Stream:     &consume.Stream{},
	}
	progress := &consume.Event{Type: consume.TypeProgress, Progress: &consume.Progress{Scopes: []consume.ScopeProgress{
		{Resource: "deployments.apps"},
		{Resource: "pods"},
	}}}
	all := map[string]*consume.Event{
		"web":      web,
		"pod":      pod,
		"node":     node,
		"knative":  knative,
		"service":  service,
		"widget":   widget,
		"events1":  events1,
		"deleted":  deleted,
		"gap":      gap,
		"started":  started,
		"progress": progress,
	}
	for _, c := range []struct {
		name string
		s    console.Selection
		want string // of all, those that match
	}{
		{"nothing asked for", console.Selection{}, "web pod node knative service widget events1 deleted gap started"},
		{"all and progress", console.Selection{Args: []string{
			"all",
		}, Progress: true}, "web pod node knative service widget events1 deleted gap started progress"},
		{"plural", console.Selection{Args: []string{"pods"}}, "pod deleted gap started"},
		{"short", console.Selection{Args: []string{"PO"}}, "pod deleted gap started"},
		{"kind", console.Selection{Args: []string{"Pod"}}, "pod deleted gap started"},
		{"with version", console.Selection{Args: []string{"deployments.v1.apps"}}, "web"},
		{"of another version", console.Selection{Args: []string{"deployments.v2.apps"}}, ""},
		{"kind and group", console.Selection{Args: []string{"Deployment.apps"}}, "web"},
		{"short and group", console.Selection{Args: []string{"deploy.apps"}}, "web"},
		{"Kubernetes' own where the name is shared", console.Selection{Args: []string{"svc"}}, "service"},
		{"the other where it is asked for", console.Selection{Args: []string{
			"services.serving.knative.dev",
		}}, "knative"},
		{"events of both groups", console.Selection{Args: []string{"ev"}}, "events1"},
		{"custom plural", console.Selection{Args: []string{"widgets"}}, "widget"},
		{"custom kind", console.Selection{Args: []string{"widget"}}, "widget"},
		{"custom group", console.Selection{Args: []string{"widgets.demo.example.com"}}, "widget"},
		{"of another group", console.Selection{Args: []string{"widgets.example.com"}}, ""},
		{"several", console.Selection{Args: []string{"no,widgets"}}, "node widget"},
		{"a name", console.Selection{Args: []string{"deploy/web"}}, "web"},
		{"a pattern; the gap may hide it", console.Selection{Args: []string{"po/web-?"}}, "pod deleted gap"},
		{"names", console.Selection{Args: []string{"pods", "web-0", "web-1"}}, "pod gap"},
		{"names are as they are", console.Selection{Args: []string{"pods", "WEB-0"}}, "gap"},
		{"several with names", console.Selection{Args: []string{"deploy/web", "no/n1"}}, "web node"},
		{"namespace", console.Selection{Namespace: "other"}, "widget gap"},
		{"namespaces", console.Selection{Namespace: "*o*"}, "web pod knative service widget events1 deleted gap"},
		{"label", console.Selection{Selector: "app=web1", Args: []string{"deploy,po"}}, "web pod gap"},
		{"labels", console.Selection{Selector: "app in (web1,x),!none,empty=,tier!=web", Args: []string{
			"deploy",
		}}, "web"},
		{"label before the deletion", console.Selection{Selector: "app=old"}, "deleted gap"},
		{"no label", console.Selection{Selector: "!app", Args: []string{"deploy"}}, ""},
		{"op", console.Selection{Ops: []string{"d"}}, "deleted"},
		{"ops", console.Selection{Ops: []string{"Deleted", "gap", "snapshot"}}, "deleted gap started"},
		{"progress", console.Selection{Ops: []string{"progress"}}, "progress"},
		{"progress of a resource", console.Selection{Args: []string{"po"}, Ops: []string{"progress"}}, "progress"},
		{"progress of a resource of a group", console.Selection{Args: []string{"deploy"}, Ops: []string{
			"progress",
		}}, "progress"},
		{"progress of another resource", console.Selection{Args: []string{"services"}, Ops: []string{"progress"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := console.NewFilter(c.s)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(c.want)
			for name, e := range all {
				asked := false
				for _, w := range want {
					asked = asked || w == name
				}
				if got := f.Match(e); got != asked {
					t.Errorf("%s: got %t", name, got)
				}
			}
		})
	}
}

func TestFilterErrorsSayWhatIsAllowed(t *testing.T) {
	for _, c := range []struct {
		s    console.Selection
		want string
	}{
		{console.Selection{Args: []string{"pods,"}}, `"pods,": want a resource (as for kubectl: pods, deploy/web`},
		{console.Selection{Args: []string{"deploy/"}}, "want one name after the slash"},
		{console.Selection{Args: []string{"deploy/shop/web"}}, "the namespace goes to --namespace"},
		{console.Selection{Args: []string{"pod$"}}, "want a resource"},
		{console.Selection{Args: []string{"pods/[a"}}, "a pattern with * ? [a-z]"},
		{console.Selection{Args: []string{"pods", "[a"}}, "want an object's name"},
		{console.Selection{Args: []string{"pods", "deploy/web"}}, "cannot be combined"},
		{console.Selection{Namespace: "[a"}, `--namespace "[a"`},
		{console.Selection{Selector: "a=b=c"}, "want label selectors as for kubectl"},
		{console.Selection{Ops: []string{
			"changed",
		}}, `--op "changed": want some of created, updated, deleted, read, entered, left, snapshot, gap, progress`},
	} {
		_, err := console.NewFilter(c.s)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.s, err, c.want)
		}
	}
}
