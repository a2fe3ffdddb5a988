package object_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

func TestNewCutterErrors(t *testing.T) {
	for _, tc := range []struct {
		path   string
		column int
		msg    string
	}{
		{"", 1, "expected a name"},
		{".a", 1, "expected a name"},
		{"a.", 3, "expected a name"},
		{"a..b", 3, "expected a name"},
		{"a.[*]", 3, "expected a name"},
		{"[*]", 1, "a path starts with a name"},
		{"a.*", 3, "[*]"},
		{"a[0]", 3, `expected [*] or ["name"]`},
		{"a['x']", 3, `expected [*] or ["name"]`},
		{"a[", 3, `expected [*] or ["name"]`},
		{"a[*", 3, `expected [*] or ["name"]`},
		{`a["x`, 5, `expected "]`},
		{`a["x"`, 6, "expected ]"},
		{`a["\q"]`, 5, "not part of a JSON string"},
		{`a["x"]b`, 7, "expected . or ["},
		{"a]", 2, "is written"},
		{"a b", 2, "is written"},
		{"a\xff", 1, "UTF-8"},
		{"metadata", 1, "identifies the object"},
		{`metadata["n\u0061me"]`, 1, "identifies the object"},
		{strings.Repeat("a.", 64) + "a", 128, "more than 64"},
		{"metadata.annotations.example.com/owner", 1, `is written metadata.annotations["example.com/owner"]`},
		{"metadata.labels.app.kubernetes.io/name", 1, `is written metadata.labels["app.kubernetes.io/name"]`},
		{`metadata.labels["app"][*]`, 1, "labels are strings"},
	} {
		_, err := object.NewCutter([]string{tc.path})
		var bad *object.PathError
		if !errors.As(err, &bad) {
			t.Errorf("%q: %v, want a PathError", tc.path, err)
			continue
		}
		if bad.Path != tc.path || bad.Column != tc.column || !strings.Contains(bad.Msg, tc.msg) {
			t.Errorf("%q: column %d: %s, want column %d: %s", tc.path, bad.Column, bad.Msg, tc.column, tc.msg)
		}
	}
}

func TestNewCutterReturnsAllErrors(t *testing.T) {
	_, err := object.NewCutter([]string{"a[", "fine", ".b"})
	want := "path \"a[\": column 3: expected [*] or [\"name\"]\npath \".b\": column 1: expected a name"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCutterWith(t *testing.T) {
	const in = `{"metadata":{"managedFields":[]},"data":{"a":1},"stringData":{},"type":"Opaque"}`
	base := cutter(t, "metadata.managedFields")
	secrets, err := base.With("data", "stringData")
	if err != nil {
		t.Fatal(err)
	}
	fromNil, err := (*object.Cutter)(nil).With("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		c    *object.Cutter
		want string
	}{
		{base, `{"metadata":{},"data":{"a":1},"stringData":{},"type":"Opaque"}`},
		{secrets, `{"metadata":{},"type":"Opaque"}`},
		{fromNil, `{"metadata":{"managedFields":[]},"stringData":{},"type":"Opaque"}`},
		{nil, in},
	} {
		out, _, err := object.NewScanner(tc.c).Scan(nil, []byte(in), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, string(out)); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := base.With("."); err == nil {
		t.Error("no error for a bad path")
	}
}

// TestRemoves: of what a path names, nothing is left where all of it is cut, or something around
// it.
func TestRemoves(t *testing.T) {
	c := redacting(t,
		cutter(t, "data", "spec.template.spec", "list[*].value", "map[*]", `labels["a/b"]`, "some.a", "some[*].x"),
		newMAC(t, testKey, false), "status")
	for path, want := range map[string]bool{
		"data": true, "data.a": true, "data[*]": true, `data["a.b"][*].c`: true, "data2": false,
		"spec":                                   false,
		"spec.template":                          false,
		"spec.template.spec":                     true,
		"spec.template.spec.containers[*].image": true,
		"spec.template[*]":                       false,
		"list":                                   false,
		"list[*]":                                false,
		"list[*].value":                          true,
		"list[*].value.x":                        true,
		"list.value":                             false,
		"list[*].name":                           false,
		"map":                                    false,
		"map.a":                                  true,
		"map[*]":                                 true,
		`labels["a/b"]`:                          true,
		"labels.a":                               false,
		"some":                                   false,
		"some[*]":                                false,
		"some[*].x":                              true,
		"some.a.y":                               true,
		"some.b.y":                               false,
		"status":                                 false,
		object.ManagedFields:                     true,
		object.LastApplied:                       true,
		"metadata":                               false,
		"a..b":                                   false,
	} {
		if got := c.Removes(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if (*object.Cutter)(nil).Removes("data") {
		t.Error("no Cutter removes data")
	}
}

// TestMayLack: from an object that lacks a value, an equal object can be made by cutting that
// value.
func TestMayLack(t *testing.T) {
	var o map[string]any
	if err := json.Unmarshal([]byte(`{"metadata":{"labels":{"a/b":"1"}},"data":{"k":"v"},"none":{},"list":[],
		"env":[{"name":"A","value":"1"},{"name":"B"}],"full":[{"value":null}],"text":"x"}`), &o); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"spec": true, "data": false, "text": false, "spec.x": false, "text.x": false, "text[*]": false,
		"data.k": false, "data.other": true, "data[*]": false, "none[*]": true, "none.x": true, "none.x.y": false,
		"list[*]":                   true,
		"list[*].value":             false,
		"list.value":                false,
		"env[*]":                    false,
		"env[*].value":              true,
		"env[*].name":               false,
		"env[*].value.x":            false,
		"env.value":                 false,
		"full[*].value":             false,
		"data[*].x":                 false,
		`metadata.labels["a/b"]`:    false,
		`metadata["l\u0061bels"].c`: true,
		"metadata.annotations[*]":   false,
	} {
		if got, err := object.MayLack(o, path); got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if _, err := object.MayLack(o, "a..b"); err == nil {
		t.Error("a..b is a path")
	}
}
