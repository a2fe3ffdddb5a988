package apiview_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

const colouredDefinition = `{"kind":"CustomResourceDefinition","metadata":{"name":"lamps.demo.example.com"},"spec":{"group":"demo.example.com","scope":"Namespaced",
	"names":{"plural":"lamps","singular":"lamp","kind":"Lamp"},"versions":[{"name":"v1","served":true,"schema":{"openAPIV3Schema":{"type":"object",
	"properties":{"spec":{"type":"object","description":"What the lamp shows.","properties":{"color":{"type":"string","enum":["red","FORM"]}}}}}}}]}}`

// lamps is a cluster with a CRD whose schema changes at resourceVersion 202.
func lamps() *record {
	r := cluster()
	r.next = 200
	const crds, version = "customresourcedefinitions", "apiextensions.k8s.io/v1"
	r.object("created", version, crds, strings.ReplaceAll(colouredDefinition, "FORM", "green"))
	r.object("updated", version, crds, strings.ReplaceAll(colouredDefinition, "FORM", "blue"))
	r.resource("demo.example.com/v1", "lamps")
	return r
}

// at finds a value in a document of JSON by the keys on the way to it; nil: it is not there.
func at(document any, keys ...string) any {
	for _, key := range keys {
		object, _ := document.(map[string]any)
		document = object[key]
	}
	return document
}

// kubectl finds for each kind that a PATCH may have the parameters fieldValidation and dryRun, at
// the root and below a moment.
func TestSchemasAllowThePatchesOfKubectl(t *testing.T) {
	t.Parallel()
	r := lamps()
	config := serve(t, &apiview.Server{
		Root: r.view(),
		Open: func(_ context.Context, at timeline.Moment) (*apiview.View, error) {
			return apiview.NewView(r.state(at), apiview.Options{Now: start}), nil
		},
	})
	host := config.Host
	for _, place := range []string{"", "/at/rv:203"} {
		config.Host = host + place
		d := discovery.NewDiscoveryClientForConfigOrDie(config)
		root := openapi3.NewRoot(d.OpenAPIV3())
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		patched := 0
		for _, l := range lists {
			gv, err := schema.ParseGroupVersion(l.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			document, err := root.GVSpecAsMap(gv)
			if err != nil {
				t.Fatalf("%s %s: %v", place, gv, err)
			}
			for i := range l.APIResources {
				res := &l.APIResources[i]
				parameters, forms := patchOf(document, gv.WithKind(res.Kind))
				if !slices.Contains(res.Verbs, "get") {
					if parameters != nil {
						t.Errorf("%s of %s can be patched", res.Name, gv)
					}
					continue
				}
				patched++
				want := []string{"dryRun", "fieldManager", "fieldValidation", "force"}
				if diff := cmp.Diff(want, parameters); diff != "" {
					t.Errorf("%s: parameters: -want +got\n%s", res.Name, diff)
				}
				// kubectl would read the rules of a strategic merge from a schema that does not
				// have them.
				if diff := cmp.Diff(
					[]string{
						"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json",
					}, forms); diff != "" {
					t.Errorf("%s: forms: -want +got\n%s", res.Name, diff)
				}
			}
		}
		if patched != 10 {
			t.Errorf("%s: %d kinds", place, patched)
		}
	}
}

// patchOf returns the query parameters of the PATCH of a kind, and the forms of its body.
func patchOf(document map[string]any, kind schema.GroupVersionKind) (parameters, forms []string) {
	paths, _ := document["paths"].(map[string]any)
	for _, path := range paths {
		patch := at(path, "patch")
		gvk := at(patch, "x-kubernetes-group-version-kind")
		if patch == nil || at(gvk, "kind") != kind.Kind || at(gvk, "group") != kind.Group ||
			at(gvk, "version") != kind.Version {
			continue
		}
		for _, p := range at(patch, "parameters").([]any) {
			if at(p, "in") == "query" {
				parameters = append(parameters, at(p, "name").(string))
			}
		}
		for form := range at(patch, "requestBody", "content").(map[string]any) {
			forms = append(forms, form)
		}
	}
	slices.Sort(forms)
	return parameters, forms
}

// The schema of a custom resource is that of its CRD at the moment. Other kinds allow every field,
// and say why.
func TestSchemasAreThoseOfTheMoment(t *testing.T) {
	t.Parallel()
	r := lamps()
	ask := func(version uint64, path, kind string) any {
		t.Helper()
		v := apiview.NewView(r.state(timeline.AtVersion(version, 0)), apiview.Options{Now: start})
		w := ask(t.Context(), &apiview.Server{Root: v, Token: token}, "GET", path, "application/json", "")
		var document map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || w.Code != 200 {
			t.Fatalf("%v: %d %s", err, w.Code, w.Body)
		}
		return at(document, "components", "schemas", kind)
	}
	for version, color := range map[uint64]string{201: "green", 202: "blue", 203: "blue"} {
		lamp := ask(version, "/openapi/v3/apis/demo.example.com/v1", "com.example.demo.v1.Lamp")
		if got := at(lamp, "properties", "spec", "properties", "color", "enum"); !cmp.Equal(got,
			any([]any{"red", color})) {
			t.Errorf("rv:%d: %v", version, got)
		}
		if at(lamp, "properties", "metadata") == nil || at(lamp, "properties", "apiVersion") == nil {
			t.Errorf("the schema lacks what every object has: %v", lamp)
		}
		gvk := []any{map[string]any{"group": "demo.example.com", "version": "v1", "kind": "Lamp"}}
		if diff := cmp.Diff(any(gvk), at(lamp, "x-kubernetes-group-version-kind")); diff != "" {
			t.Error(diff)
		}
	}
	for kind, note := range map[string]string{
		"v1.Pod": "The record does not have the schemas of Kubernetes' own kinds",
	} {
		got := ask(203, "/openapi/v3/api/v1", kind)
		spec := at(got, "properties", "spec")
		for _, s := range []any{got, spec} {
			text, _ := at(s, "description").(string)
			if !strings.Contains(text, note) || at(s, "x-kubernetes-preserve-unknown-fields") != true {
				t.Errorf("%s: %v", kind, s)
			}
		}
	}
	gear := ask(203, "/openapi/v3/apis/demo.example.com/v1", "com.example.demo.v1.Widget") // its CRD has no schema
	if at(gear, "description") != "The record does not have the schema of this kind at the moment." {
		t.Error(gear)
	}
}

// The metadata of objects has the schema of the API server, with all that it refers to.
func TestSchemaOfMetadata(t *testing.T) {
	t.Parallel()
	w := ask(t.Context(), &apiview.Server{Root: cluster().view(), Token: token}, "GET", "/openapi/v3/api/v1", "", "")
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	const meta = "io.k8s.apimachinery.pkg.apis.meta.v1."
	schemas, _ := at(document, "components", "schemas").(map[string]any)
	for _, ref := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).
		FindAllStringSubmatch(w.Body.String(), -1) {
		if schemas[ref[1]] == nil {
			t.Errorf("%s is missing", ref[1])
		}
	}
	for field, want := range map[string]string{
		"name":              `{"type":"string"}`,
		"generation":        `{"format":"int64","type":"integer"}`,
		"creationTimestamp": `{"format":"date-time","type":"string"}`,
		"labels":            `{"additionalProperties":{"type":"string"},"type":"object"}`,
		"ownerReferences": `{"items":{"allOf":[{"$ref":"#/components/schemas/` + meta +
			`OwnerReference"}]},"type":"array"}`,
	} {
		schema, _ := at(schemas[meta+"ObjectMeta"], "properties", field).(map[string]any)
		if schema["description"] == "" {
			t.Errorf("%s has no description", field)
		}
		delete(schema, "description")
		if got, _ := json.Marshal(schema); string(got) != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	if diff := cmp.Diff(any([]any{"apiVersion", "kind", "name", "uid"}),
		at(schemas[meta+"OwnerReference"], "required")); diff != "" {
		t.Error(diff)
	}
}

// The core group has Namespace, which kubectl asks for kinds that it does not find, also if the
// record has none.
func TestSchemasHaveNamespace(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "pods")
	w := ask(t.Context(), &apiview.Server{Root: r.view(), Token: token}, "GET", "/openapi/v3/api/v1", "", "")
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Namespace", "Pod"} {
		if parameters, _ := patchOf(document, schema.GroupVersionKind{
			Version: "v1",
			Kind:    kind,
		}); !slices.Contains(parameters, "fieldValidation") {
			t.Errorf("%s: %s", kind, w.Body)
		}
	}
}

func TestSchemasThatAreNotThere(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for _, path := range []string{
		"/openapi", "/openapi/v2", "/openapi/v3/api", "/openapi/v3/api/v2", "/openapi/v3/apis/apps",
		"/openapi/v3/apis/apps/v2", "/openapi/v3/apis/none.io/v1",
		"/openapi/v3/apis/apps/v1/more", "/openapi/v3/api/apps/v1", "/openapi/v3/version",
	} {
		if w := ask(t.Context(), s, "GET", path, "", ""); w.Code != 404 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ask(t.Context(), s, "GET", "/openapi/v3", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
		""); w.Code != 406 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w := ask(t.Context(), s, "PATCH", "/api/v1/namespaces/shop/pods/web-0?fieldValidation=Strict&dryRun=All", "", "{}")
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != 405 ||
		!strings.HasPrefix(status.Message, "the past cannot be changed") {
		t.Errorf("%v: %d %s", err, w.Code, w.Body)
	}
}

// /version is that of the API server at the moment.
func TestVersionIsThatOfTheMoment(t *testing.T) {
	t.Parallel()
	r := &record{next: 10}
	r.resource("v1", "configmaps")
	says := func(version string) {
		r.progress("configmaps")
		r.events[len(r.events)-1].Progress.APIServerVersion = version
	}
	r.progress("configmaps")                                                          // 13
	says("v1.36.4-eks-1")                                                             // 14
	says("")                                                                          // 15
	r.object("created", "v1", "configmaps", objectJSON("ConfigMap", "shop", "a", "")) // 16
	says("v1.37.1")                                                                   // 17
	says("another 2.0")                                                               // 18
	for version, want := range map[uint64]string{
		13: `"major":"1","minor":"37","gitVersion":"v1.37.0+kubecdc"`, // no progress has it
		14: `"major":"1","minor":"36","gitVersion":"v1.36.4-eks-1"`,
		16: `"major":"1","minor":"36","gitVersion":"v1.36.4-eks-1"`,
		17: `"major":"1","minor":"37","gitVersion":"v1.37.1"`,
		18: `"major":"1","minor":"37","gitVersion":"another 2.0"`,
	} {
		for _, moment := range []timeline.Moment{
			timeline.AtVersion(version, 0), timeline.At(start.Add(time.Duration(version) * time.Second)),
		} {
			if got := versionAt(t, r, moment); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", moment, got, want)
			}
		}
	}
	// The first progress of a run says it of the time before.
	r.events[6].Progress.Number = 1 // of those that say it, the first has resourceVersion 17 now
	r.events[3].Progress.APIServerVersion = ""
	for version, want := range map[uint64]string{13: "v1.37.1", 16: "v1.37.1", 18: "another 2.0"} {
		if got := versionAt(t, r, timeline.AtVersion(version, 0)); !strings.Contains(got, want) {
			t.Errorf("rv:%d: %s, want %s", version, got, want)
		}
	}
}

func versionAt(t *testing.T, r *record, moment timeline.Moment) string {
	v := apiview.NewView(r.state(moment), apiview.Options{Now: start})
	return ask(t.Context(), &apiview.Server{Root: v, Token: token}, "GET", "/version", "", "").Body.String()
}
