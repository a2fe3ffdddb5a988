package patch_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/object/patch"
)

func TestParse(t *testing.T) {
	got, err := patch.Parse(
		[]byte(
			` [{"op":"add","path":"/a~1b/0/~01","value":null},{"path":"","value":{"x":[1]},"op":"replace"},{"op":"remove","path":"/"}] `))
	if err != nil {
		t.Fatal(err)
	}
	want := []patch.Operation{
		{Op: "add", Path: []string{"a/b", "0", "~1"}, Value: json.RawMessage("null")},
		{Op: "replace", Value: json.RawMessage(`{"x":[1]}`)},
		{Op: "remove", Path: []string{""}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, damaged := range []string{``, `{}`, `[`, `[1]`, `[{"op":1}]`, `[{"path":["a"]}]`} {
		if _, err := patch.Parse([]byte(damaged)); err == nil {
			t.Errorf("%s: no error", damaged)
		}
	}
}

// A parsed patch has the names of the object, however they are written.
func TestParsedPathsHaveTheNamesOfTheObject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := texts.Draw(t, "first"), texts.Draw(t, "second")
		write := func(value json.Number) []byte {
			return writers(t).append(nil, map[string]any{first: map[string]any{second: value}})
		}
		all, err := patch.Parse(mustPatch(t, write("0"), write("1")))
		if err != nil {
			t.Fatal(err)
		}
		want := []patch.Operation{{Op: "replace", Path: []string{first, second}, Value: json.RawMessage("1")}}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Fatal(diff)
		}
	})
}
