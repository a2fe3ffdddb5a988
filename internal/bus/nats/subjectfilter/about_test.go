package subjectfilter_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A subject says what its records are about, and nothing that is wrong.
func TestAboutSubject(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 300)
	// Its subjects look like those of scopes.
	const asLongAsScopes = "kubecdc.{cluster}.{namespace}.{resource}.{group}.{name}"
	for _, template := range []string{
		"", asLongAsScopes, "kubecdc.{cluster}.object.{group}.{resource}.{namespace}", "k8s.{resource}",
		"kubecdc.all", "kubecdc.{cluster}.object.{group}.{resource}.{namespace}.n-{name}",
		"kubecdc.{cluster}.x.{group}-{resource}.{name}.y",
	} {
		makes, err := subject.New(template, "prod-eu.1")
		if err != nil {
			t.Fatal(err)
		}
		about, err := subjectfilter.About(template)
		if err != nil {
			t.Fatal(err)
		}
		has := func(field string) bool {
			whole := "." + template + "."
			if template == "" {
				whole = "." + subject.Default + "."
			}
			return strings.Contains(whole, ".{"+field+"}.")
		}
		for _, r := range []*object.Resource{{Version: "v1", Name: "pods"}, {Group: "apps", Name: "deployments"}, {
			Group: "a.b-c.io",
			Name:  "widgets",
		}} {
			for _, namespace := range []string{"shop", ""} {
				for _, name := range []string{"web", "web.v1", "system:node", "a b%2E*>~", "core", "_", long} {
					of := string(makes.Append(nil, &object.Delta{Ref: object.NewRef(r, namespace, name, "u")}))
					want := consume.About{}
					if has("cluster") {
						want.Cluster = "prod-eu.1"
					}
					if has("resource") && has("group") {
						want.Resource = r.String()
					}
					if has("namespace") {
						want.Namespace = namespace
						if namespace == "" {
							want.Namespace = consume.NoNamespace
						}
					}
					if has("name") && name != long {
						want.Name = name
					}
					if got := about(of); got != want {
						t.Errorf("template %q, %s: got %+v, want %+v", template, of, got, want)
					}
				}
			}
			for _, kind := range []object.StreamKind{object.SnapshotStarted, object.ScopeStarted} {
				stream := string(makes.Append(nil, &object.Delta{Stream: &object.StreamEvent{
					Kind:     kind,
					Resource: r,
					Scope:    "a/b",
				}}))
				want := consume.About{Cluster: "prod-eu.1", Resource: r.String()}
				if kind == object.ScopeStarted && template == asLongAsScopes {
					want = consume.About{}
				}
				if got := about(stream); got != want {
					t.Errorf("template %q, %s: got %+v, want %+v", template, stream, got, want)
				}
			}
		}
		progress := string(makes.AppendProgress(nil, "5f2c98d1a4b0e367"))
		if got, want := about(progress), (consume.About{Cluster: "prod-eu.1", Progress: true}); got != want {
			t.Errorf("template %q, %s: got %+v, want %+v", template, progress, got, want)
		}
		for _, other := range []string{
			"", "kubecdc", "kubecdc.prod.object.core.pods.shop.web.x", "other.prod.object.core.pods.shop.web",
			"kubecdc.prod.x.core.pods",
		} {
			if got := about(other); got != (consume.About{}) && template == "" {
				t.Errorf("%s: %+v", other, got)
			}
		}
	}
	// Two forms make this subject.
	about, err := subjectfilter.About("kubecdc.{cluster}.{name}.{group}.{resource}")
	if err != nil {
		t.Fatal(err)
	}
	if got := about("kubecdc.prod.stream.core.pods"); got != (consume.About{}) {
		t.Errorf("an ambiguous subject: %+v", got)
	}
}
