package subjectfilter_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestSubjects(t *testing.T) {
	const foreign = " * *.* *.*.* *.*.*.*.*.*.*.>"
	pods := consume.Objects{Groups: []string{""}, Resource: "pods"}
	web := consume.Objects{Groups: []string{""}, Resource: "pods", Name: "web.v1"}
	inShop := consume.Objects{Namespace: "shop"}
	for _, c := range []struct {
		name, template string
		objects        []consume.Objects
		events         consume.Events
		want           string
	}{
		{"all", "", []consume.Objects{{}}, consume.AllEvents, "none"},
		{
			"a resource", "",
			[]consume.Objects{pods},
			consume.AllEvents,
			"kubecdc.*.object.core.pods.*.* kubecdc.*.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.*.progress.*" +
				foreign,
		},
		{"without stream events", "", []consume.Objects{
			pods,
		}, consume.ObjectEvents, "kubecdc.*.object.core.pods.*.*" + foreign},
		{
			"an object without a namespace", "",
			[]consume.Objects{{Groups: []string{""}, Resource: "nodes", Namespace: consume.NoNamespace, Name: "n1"}},
			consume.ObjectEvents, "kubecdc.*.object.core.nodes._.n1" + foreign,
		},
		{
			"only stream events", "",
			[]consume.Objects{web},
			consume.StreamEvents,
			"kubecdc.*.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.*.progress.*" + foreign,
		},
		{
			"only stream events, of all", "", nil, consume.StreamEvents,
			"kubecdc.*.stream.*.* kubecdc.*.scope.*.*.* kubecdc.*.progress.*" + foreign,
		},
		{"scopes", "", []consume.Objects{
			web,
		}, consume.ScopeEvents, "kubecdc.*.scope.core.pods.* kubecdc.*.progress.*" + foreign},
		{
			"one scope", "",
			[]consume.Objects{{Groups: []string{""}, Resource: "pods", Scope: "pods/shop"}},
			consume.ScopeEvents,
			"kubecdc.*.scope.core.pods.pods%2Fshop kubecdc.*.progress.*" + foreign,
		},
		{"a name, escaped", "", []consume.Objects{
			web,
		}, consume.ObjectEvents, "kubecdc.*.object.core.pods.*.web%2Ev1" + foreign},
		{
			"a namespace", "",
			[]consume.Objects{inShop},
			consume.AllEvents,
			"kubecdc.*.object.*.*.shop.* kubecdc.*.stream.*.* kubecdc.*.scope.*.*.* kubecdc.*.progress.*" + foreign,
		},
		{
			"a group with dots", "",
			[]consume.Objects{{Groups: []string{"rbac.authorization.k8s.io"}}},
			consume.AllEvents,
			"kubecdc.*.object.rbac_authorization_k8s_io.*.*.* kubecdc.*.stream.rbac_authorization_k8s_io.* kubecdc.*.scope.rbac_authorization_k8s_io.*.* kubecdc.*.progress.*" +
				foreign,
		},
		{"one is in the other", "", []consume.Objects{
			web, pods,
		}, consume.ObjectEvents, "kubecdc.*.object.core.pods.*.*" + foreign},
		{"some are in both: all that both have in common", "", []consume.Objects{
			pods, inShop,
		}, consume.ObjectEvents, "none"},
		{
			"no name in the template", "kubecdc.{cluster}.object.{group}.{resource}.{namespace}",
			[]consume.Objects{web},
			consume.AllEvents,
			"kubecdc.*.object.core.pods.* kubecdc.*.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.*.progress.* * *.* *.*.* *.*.*.*.*.*.>",
		},
		{"nothing that is asked for in the template", "kubecdc.{cluster}.object.{resource}", []consume.Objects{
			inShop,
		}, consume.AllEvents, "none"},
		{
			"within a token", "k8s.{cluster}.v1-{resource}-{name}",
			[]consume.Objects{web},
			consume.ObjectEvents,
			"k8s.*.v1-pods-web%2Ev1 * *.* *.*.*.*.*.*.>",
		},
		{"within a token, and not known", "k8s.{cluster}.v1-{resource}-{name}", []consume.Objects{
			pods,
		}, consume.ObjectEvents, "none"},
		{
			"objects as long as stream events", "kubecdc.{cluster}.{resource}.{namespace}.{name}",
			[]consume.Objects{pods},
			consume.AllEvents,
			"kubecdc.*.pods.*.* kubecdc.*.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.*.progress.* * *.* *.*.* *.*.*.*.*.*.>",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := subjectfilter.New(c.template, &consume.Query{Objects: c.objects, Events: c.events})
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			if f != nil {
				got = strings.Join(f.Subjects(), " ")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// matches implements the rule of NATS again.
func matches(wildcard, subject string) bool {
	w, s := strings.Split(wildcard, "."), strings.Split(subject, ".")
	for i, token := range w {
		if token == ">" {
			return len(s) > i
		}
		if i >= len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(w) == len(s)
}

// The wildcards match every subject that the agent makes for wanted objects, and no two of them
// overlap.
func TestSubjectsMatchWhatIsWanted(t *testing.T) {
	templates := []string{
		"", "kubecdc.{cluster}.object.{group}.{resource}.{namespace}",
		"kubecdc.{cluster}.object.{namespace}.{group}.{resource}.{name}",
		"k.{cluster}.{resource}.{namespace}.{name}", "kubecdc.{cluster}.{resource}.{namespace}.{name}",
		"k.{name}-{namespace}.{cluster}-{group}",
		"k.all",
	}
	values := func(first ...string) *rapid.Generator[string] {
		return rapid.OneOf(rapid.SampledFrom(first), rapid.StringMatching(`[a-z0-9.:_%*>~ -]{1,8}`),
			rapid.Just(strings.Repeat("n.", 200)))
	}
	groups := values("", "core", "apps", "rbac.authorization.k8s.io", "a_b")
	resources := values("pods", "deployments", "stream")
	namespaces := values("shop", "a.b").Filter(func(s string) bool { return s != consume.NoNamespace })
	names := values("web", "web.v1", "web%2Ev1")
	rapid.Check(t, func(t *rapid.T) {
		template := rapid.SampledFrom(templates).Draw(t, "template")
		made, err := subject.New(template,
			values("prod", "prod-eu.1").Filter(func(s string) bool { return s != "" }).Draw(t, "cluster"))
		if err != nil {
			t.Fatal(err)
		}
		resource := &object.Resource{Group: groups.Draw(t, "group"), Name: resources.Draw(t, "resource")}
		namespace, name := rapid.OneOf(rapid.Just(""), namespaces).Draw(t, "namespace"), names.Draw(t, "name")
		delta := &object.Delta{Ref: object.NewRef(resource, namespace, name, "u")}
		stream := &object.Delta{Stream: &object.StreamEvent{Kind: object.SnapshotStarted, Resource: resource}}
		scope := &object.Delta{Stream: &object.StreamEvent{
			Kind:     object.ScopeStarted,
			Resource: resource,
			Scope:    resource.String() + "/" + namespace,
		}}
		clusterToken, _, _ := strings.Cut(strings.TrimPrefix(string(made.Append(nil, stream)), "kubecdc."), ".stream.")

		// The first entry of wanted matches the object. The others are random.
		maybe := func(value string) string {
			if rapid.Bool().Draw(t, "asked for") {
				return value
			}
			return ""
		}
		wanted := []consume.Objects{{Resource: maybe(resource.Name), Namespace: maybe(namespace), Name: maybe(name)}}
		if rapid.Bool().Draw(t, "of the group") {
			wanted[0].Groups = []string{groups.Draw(t, "another group"), resource.Group}
		}
		for range rapid.IntRange(0, 3).Draw(t, "others") {
			o := consume.Objects{
				Resource:  maybe(resources.Draw(t, "resource")),
				Namespace: maybe(namespaces.Draw(t, "namespace")),
				Name:      maybe(names.Draw(t, "name")),
			}
			if rapid.Bool().Draw(t, "of a group") {
				o.Groups = []string{groups.Draw(t, "group")}
			}
			wanted = append(wanted, o)
		}
		f, err := subjectfilter.New(template, &consume.Query{Objects: wanted})
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			return // everything is read
		}
		subjects := f.Subjects()
		progress := "kubecdc." + clusterToken + ".progress.3f0a5c1e9b7d2846"
		for _, subject := range []string{
			string(made.Append(nil, delta)), string(made.Append(nil, stream)), string(made.Append(nil, scope)),
			progress,
		} {
			n := 0
			for _, w := range subjects {
				if matches(w, subject) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d of %q match %q, want one", n, subjects, subject)
			}
		}
	})
}
