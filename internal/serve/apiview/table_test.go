package apiview_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// lines returns the columns and the rows of a Table. A + is before columns that -o wide alone
// shows.
func lines(t *testing.T, body []byte) []string {
	t.Helper()
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var head []string
	for _, c := range table.ColumnDefinitions {
		head = append(head, strings.Repeat("+", int(c.Priority))+c.Name)
	}
	out := []string{strings.Join(head, " | ")}
	for _, r := range table.Rows {
		if len(r.Cells) != len(table.ColumnDefinitions) {
			t.Errorf("%d columns, and %d cells: %v", len(table.ColumnDefinitions), len(r.Cells), r.Cells)
		}
		var cells []string
		for _, c := range r.Cells {
			cells = append(cells, fmt.Sprint(c))
		}
		out = append(out, strings.Join(cells, " | "))
	}
	return out
}

// Tables have the columns of kube-apiserver, or of the CRD. Ages are as of the moment.
func TestTables(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for path, want := range map[string][]string{
		"/api/v1/pods": {
			"Name | Ready | Status | Restarts | Age | +IP | +Node | +Nominated Node | +Readiness Gates",
			"db-0 | 0/1 | Completed | 0 | 120m | <none> | n1 | <none> | <none>",
			"web-0 | 1/1 | Running | 2 (30m ago) | 120m | 10.0.0.1 | n1 | <none> | <none>",
			"web-1 | 0/1 | Pending | 0 | 120m | <none> | n2 | <none> | <none>",
		},
		"/apis/apps/v1/deployments": {
			"Name | Ready | Up-to-date | Available | Age | +Containers | +Images | +Selector",
			"web | 1/2 | 2 | 1 | 120m | app,log | web:1,log:2 | app=web",
		},
		"/apis/apps/v1/namespaces/shop/deployments/web": {
			"Name | Ready | Up-to-date | Available | Age | +Containers | +Images | +Selector",
			"web | 1/2 | 2 | 1 | 120m | app,log | web:1,log:2 | app=web",
		},
		"/api/v1/secrets": {
			"Name | Type | Data | Age", "hashed | Opaque | 2 | 120m", "removed | Opaque | <unknown> | 120m",
		},
		"/apis/rbac.authorization.k8s.io/v1/roles": {"Name | Created At", "reader | 2026-11-20T12:00:00Z"},
		"/apis/demo.example.com/v1/widgets": {
			"Name | Color | +Size | Ready | Made", "cog | blue | <nil> | <nil> | 120m", "gear | red | 7 | True | 120m",
		},
		"/apis/demo.example.com/v1/gadgets": {"Name | Age"},
	} {
		w := ask(t.Context(), s, "GET", path, asTable, "")
		if diff := cmp.Diff(want, lines(t, w.Body.Bytes())); diff != "" {
			t.Errorf("%s: -want +got\n%s", path, diff)
		}
	}
}

// A list of StorageClasses marks the newest default, as kube-apiserver does. A single one is not
// marked.
func TestDefaultStorageClass(t *testing.T) {
	t.Parallel()
	class := func(name, created, annotation string) string {
		return fmt.Sprintf(
			`{"kind":"StorageClass","metadata":{"name":%q,"creationTimestamp":%q,"annotations":{%q:"true"}},"provisioner":"p"}`,
			name, created, annotation)
	}
	r := &record{}
	r.resource("storage.k8s.io/v1", "storageclasses",
		class("a", "2026-11-20T12:00:00Z", "storageclass.kubernetes.io/is-default-class"),
		class("b", "2026-11-20T13:00:00Z", "storageclass.beta.kubernetes.io/is-default-class"),
		class("c", "2026-11-20T13:00:00Z", "storageclass.kubernetes.io/is-default-class"),
		class("d", "2026-11-20T13:30:00Z", "x"))
	s := &apiview.Server{Root: r.view(), Token: token}
	const columns = "Name | Provisioner | ReclaimPolicy | VolumeBindingMode | AllowVolumeExpansion | Age"
	for path, want := range map[string][]string{
		"": {
			columns, "a | p | Delete | Immediate | false | 120m", "b (default) | p | Delete | Immediate | false | 60m",
			"c | p | Delete | Immediate | false | 60m", "d | p | Delete | Immediate | false | 30m",
		},
		"?fieldSelector=metadata.name%3Da": {columns, "a (default) | p | Delete | Immediate | false | 120m"},
		"/b":                               {columns, "b | p | Delete | Immediate | false | 60m"},
	} {
		w := ask(t.Context(), s, "GET", "/apis/storage.k8s.io/v1/storageclasses"+path, asTable, "")
		if diff := cmp.Diff(want, lines(t, w.Body.Bytes())); diff != "" {
			t.Errorf("%s: -want +got\n%s", path, diff)
		}
	}
}

// An APIService shows its Service, and why it is not available.
func TestAPIServiceColumns(t *testing.T) {
	t.Parallel()
	service := func(name, rest string) string {
		return fmt.Sprintf(`{"kind":"APIService","metadata":{"name":%q},%s}`, name, rest)
	}
	r := &record{}
	r.resource("apiregistration.k8s.io/v1", "apiservices",
		service("v1.", `"spec":{},"status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}`),
		service("v1.metrics",
			`"spec":{"service":{"namespace":"kube-system","name":"metrics"}},"status":{"conditions":[{"type":"Available","status":"False","reason":"MissingEndpoints"}]}`),
		service("v2.new", `"spec":{"service":{"namespace":"a","name":"b"}}`))
	w := ask(t.Context(), &apiview.Server{Root: r.view(), Token: token}, "GET",
		"/apis/apiregistration.k8s.io/v1/apiservices", asTable, "")
	want := []string{
		"Name | Service | Available | Age", "v1. | Local | True | 120m",
		"v1.metrics | kube-system/metrics | False (MissingEndpoints) | 120m", "v2.new | a/b | Unknown | 120m",
	}
	if diff := cmp.Diff(want, lines(t, w.Body.Bytes())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A client that accepts YAML gets the objects, and lists, of the JSON answer. A watch cannot be
// YAML.
func TestYAML(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/shop/pods/web-0"} {
		w := ask(t.Context(), s, "GET", path, "application/yaml", "")
		if kind := w.Header().Get("Content-Type"); kind != "application/yaml" ||
			strings.HasPrefix(w.Body.String(), "{") {
			t.Errorf("%s: %s: %s", path, kind, w.Body)
		}
		want, err := yaml.JSONToYAML(ask(t.Context(), s, "GET", path, "application/json", "").Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), w.Body.String()); diff != "" {
			t.Errorf("%s: -JSON +YAML\n%s", path, diff)
		}
	}
	for path, accept := range map[string]string{
		"/api/v1/pods?watch=true": "application/yaml",
		"/api/v1/pods":            "application/yaml;as=Table;g=meta.k8s.io;v=v1",
		"/apis":                   "application/yaml",
	} {
		if w := ask(t.Context(), s, "GET", path, accept, ""); w.Code != http.StatusNotAcceptable {
			t.Errorf("%s with %s: %d %s", path, accept, w.Code, w.Body)
		}
	}
}

// A client that accepts anything, or says nothing, is answered JSON. The first of equal forms is
// taken.
func TestAnyFormIsJSON(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for accept, want := range map[string][3]string{ // of /api/v1/pods, of /apis, of a watch
		"":                                 {"application/json", "application/json", "application/json"},
		"*/*":                              {"application/json", "application/json", "application/json"},
		"application/*":                    {"application/json", "application/json", "application/json"},
		"text/html, application/*;q=0.5":   {"application/json", "application/json", "application/json"},
		"text/html, */*;q=0.1":             {"application/json", "application/json", "application/json"},
		"*/*, application/yaml":            {"application/json", "application/json", "application/json"},
		"application/yaml, */*":            {"application/yaml", "application/json", "application/json"},
		"application/yaml;q=0.5, */*":      {"application/json", "application/json", "application/json"},
		"application/yaml, */*;q=0.5":      {"application/yaml", "application/json", "application/json"},
		"application/*;q=0, text/html;q=1": {"406", "406", "406"},
	} {
		for i, path := range []string{
			"/api/v1/pods", "/apis", "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=7",
		} {
			w := ask(t.Context(), s, "GET", path, accept, "")
			got := w.Header().Get("Content-Type")
			if w.Code != http.StatusOK {
				got = strconv.Itoa(w.Code)
			} else if (got == "application/json") != json.Valid(bytes.TrimSpace(w.Body.Bytes())) {
				t.Errorf("%s, Accept %q: %s: %s", path, accept, got, w.Body)
			}
			if got != want[i] {
				t.Errorf("%s, Accept %q: want %s, got %s", path, accept, want[i], got)
			}
		}
	}
}

// YAML has no raw control characters, and takes some for the end of a line.
func TestYAMLOfControlCharacters(t *testing.T) {
	t.Parallel()
	const value = "a\u0085b\u009bc\u007fd"
	r := &record{next: 100}
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", "odd", `"data":{"k":"`+value+`"}`))
	w := ask(t.Context(), &apiview.Server{Root: r.view(), Token: token}, "GET",
		"/api/v1/namespaces/shop/configmaps/odd", "application/yaml", "")
	var got struct{ Data map[string]string }
	if err := yaml.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Data["k"] != value {
		t.Errorf("%d: %q, %v", w.Code, got.Data, err)
	}
}

// The columns of a resource are those of its Table, without the name.
func TestColumnsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for path, resource := range map[string]string{
		"/api/v1/pods":              "pods",
		"/apis/apps/v1/deployments": "deployments",
		"/api/v1/secrets":           "secrets",
	} {
		table := lines(t, ask(t.Context(), s, "GET", path, asTable, "").Body.Bytes())
		var list struct {
			APIVersion string
			Items      []json.RawMessage
		}
		if err := json.Unmarshal(ask(t.Context(), s, "GET", path, "application/json", "").Body.Bytes(),
			&list); err != nil {
			t.Fatal(err)
		}
		for _, wide := range []bool{false, true} {
			titles, row := apiview.Columns(list.APIVersion, resource, wide)
			var want []string
			for _, name := range strings.Split(table[0], " | ")[1:] {
				if wide || !strings.HasPrefix(name, "+") {
					want = append(want, strings.ToUpper(strings.TrimPrefix(name, "+")))
				}
			}
			if diff := cmp.Diff(want, titles); diff != "" {
				t.Errorf("%s, wide %t: -want +got\n%s", path, wide, diff)
			}
			for i, item := range list.Items {
				got, err := row(item, start)
				if cells := strings.Split(table[i+1], " | ")[1:]; err != nil ||
					strings.Join(got, " | ") != strings.Join(cells[:len(titles)], " | ") {
					t.Errorf("%s, wide %t: got %q, %v, want %q", path, wide, got, err, cells[:len(titles)])
				}
			}
		}
	}
	for _, apiVersion := range []string{"demo.example.com/v1", "apps/v1beta1"} {
		if titles, row := apiview.Columns(apiVersion, "deployments", true); titles != nil || row != nil {
			t.Errorf("%s: got %q", apiVersion, titles)
		}
	}
}

// A row has the object in the form that the client asks for.
func TestIncludeObject(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for include, want := range map[string]string{
		"":         "PartialObjectMetadata meta.k8s.io/v1 red: false",
		"Metadata": "PartialObjectMetadata meta.k8s.io/v1 red: false",
		"Object":   "Widget demo.example.com/v1 red: true",
		"None":     "  red: false",
	} {
		w := ask(t.Context(), s, "GET",
			"/apis/demo.example.com/v1/widgets?fieldSelector=spec.color%3Dred&includeObject="+include, asTable, "")
		var table metav1.Table
		if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || len(table.Rows) != 1 {
			t.Fatalf("%s: %v: %s", include, err, w.Body)
		}
		raw := table.Rows[0].Object.Raw
		var o metav1.PartialObjectMetadata
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(o.Kind, " ", o.APIVersion, " red: ", strings.Contains(string(raw), `"red"`)); got != want {
			t.Errorf("%q: want %s, got %s", include, want, got)
		}
	}
}

func TestMetadataAlone(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for path, as := range map[string]string{
		"/apis/demo.example.com/v1/widgets":                      "PartialObjectMetadataList",
		"/apis/demo.example.com/v1/namespaces/shop/widgets/gear": "PartialObjectMetadata",
	} {
		w := ask(t.Context(), s, "GET", path,
			"application/vnd.kubernetes.protobuf;as="+as+";g=meta.k8s.io;v=v1,application/json;as="+as+
				";g=meta.k8s.io;v=v1,application/json", "")
		var o metav1.TypeMeta
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != as || o.APIVersion != "meta.k8s.io/v1" || strings.Contains(w.Body.String(), "color") ||
			!strings.Contains(w.Body.String(), "gear") {
			t.Errorf("%s: %s", as, w.Body)
		}
	}
}
