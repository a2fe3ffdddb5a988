package filter_test

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// changed and changedOnly return the same for an update and for its reverse.
func TestChangedAndChangedOnly(t *testing.T) {
	for _, tc := range []struct {
		before, after, path string
		changed, only       bool
	}{
		{`{"a":1}`, `{"a":1}`, "a", false, true},
		{`{"a":1}`, `{"a":2}`, "a", true, true},
		{`{"a":1}`, `{}`, "a", true, true},
		{`{"a":null}`, `{}`, "a", true, true},
		{`{"a":1,"b":1}`, `{"a":2,"b":2}`, "a", true, false},
		{`{"a":{"x":1,"y":[1,{}]}}`, `{"a": {"y": [1, {}], "x": 1}}`, "a", false, true}, // in any spelling
		{`{"a":"x"}`, `{"a":"\u0078"}`, "a", false, true},
		{`{"a":{"b":1}}`, `{"a":{"b":2}}`, "a.b", true, true},
		{`{"a":{"b":1,"c":1}}`, `{"a":{"b":2,"c":2}}`, "a.b", true, false},
		{`{"a":{"b":1}}`, `{"a":"x"}`, "a.b", true, false},

		// An object that contains nothing else counts as missing, at any depth.
		{`{"a":{"b":1}}`, `{}`, "a.b", true, true},
		{`{"a":{}}`, `{}`, "a.b", false, true},
		{`{"a":{"b":1,"c":1}}`, `{}`, "a.b", true, false},
		{`{"a":{"b":{"c":1}}}`, `{}`, "a.b.c", true, true},
		{`{"a":{"b":{"c":1}}}`, `{"a":{}}`, "a.b.c", true, true},
		{`{"a":{"b":{"c":1},"d":1}}`, `{"a":{"d":1}}`, "a.b.c", true, true},
		{`{"a":{"b":{"c":1},"d":1}}`, `{}`, "a.b.c", true, false},
		{`{"a":{"b":{"c":1,"d":1}}}`, `{}`, "a.b.c", true, false},
		{`{"a":{}}`, `{}`, "b.c", false, false},
		{`{"a":{"x/y":1}}`, `{}`, `a["x/y"]`, true, true},
		{`{"a":{"x\"]":1}}`, `{"b":1}`, `a["x\"]"]`, true, false},
		{`{"a":{"x":1,"y":2}}`, `{}`, "a[*]", true, true},
		{`{"a":{"x":{"y":1}}}`, `{}`, "a[*].y", true, false}, // it compares which members exist
		{`{"a":{"x":{"y":1}}}`, `{"a":{"x":{}}}`, "a[*].y", true, true},

		{`{"a":[{"b":1},{"b":2}]}`, `{"a":[{"b":1},{"b":3}]}`, "a[*].b", true, true},
		{`{"a":[{"b":1,"c":1},{"b":2}]}`, `{"a":[{"b":1,"c":2},{"b":2}]}`, "a[*].b", false, false},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":1},{"b":2}]}`, "a[*].b", true, false},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":1},{"c":2}]}`, "a[*].b", false, false},
		{`{"a":[]}`, `{}`, "a[*].b", false, false},

		{
			`{"metadata":{"resourceVersion":"1","generation":1}}`,
			`{"metadata":{"resourceVersion":"2","managedFields":[]}}`, "a", false, true,
		},
		{
			`{"metadata":{"resourceVersion":"1","labels":{"x":"y"}}}`, `{"metadata":{"resourceVersion":"2"}}`,
			"metadata.labels.x", true, true,
		},
		{`{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"resourceVersion":"2"}}`, "metadata", true, true},
	} {
		for what, want := range map[string]bool{"changed": tc.changed, "changedOnly": tc.only} {
			where := fmt.Sprintf("%s(%q)", what, tc.path)
			x := resourced(t, filter.Options{Where: where, OnError: "drop"}, deployments)
			for _, sides := range [][2]string{{tc.before, tc.after}, {tc.after, tc.before}} {
				got := x.Withholds(delta(object.Updated, sides[0], sides[1]))
				if got == filter.ReasonError || (got == "") != want {
					t.Errorf("%s of %s and %s: %q, want %t", where, sides[0], sides[1], got, want)
				}
			}
		}
	}
}
