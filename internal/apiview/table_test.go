package apiview_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/apiview"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// lines returns the columns and the rows of a Table. A + is before columns that -o wide alone shows.
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
		"/api/v1/secrets":                          {"Name | Type | Data | Age", "hashed | Opaque | 2 | 120m", "removed | Opaque | 0 | 120m"},
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

// A row has the object in the form that the client asks for.
func TestIncludeObject(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for include, want := range map[string]string{
		"": "PartialObjectMetadata meta.k8s.io/v1 red: false", "Metadata": "PartialObjectMetadata meta.k8s.io/v1 red: false",
		"Object": "Widget demo.example.com/v1 red: true", "None": "  red: false",
	} {
		w := ask(t.Context(), s, "GET", "/apis/demo.example.com/v1/widgets?fieldSelector=spec.color%3Dred&includeObject="+include, asTable, "")
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
		w := ask(t.Context(), s, "GET", path, "application/vnd.kubernetes.protobuf;as="+as+";g=meta.k8s.io;v=v1,application/json;as="+as+";g=meta.k8s.io;v=v1,application/json", "")
		var o metav1.TypeMeta
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != as || o.APIVersion != "meta.k8s.io/v1" || strings.Contains(w.Body.String(), "color") || !strings.Contains(w.Body.String(), "gear") {
			t.Errorf("%s: %s", as, w.Body)
		}
	}
}
