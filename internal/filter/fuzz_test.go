package filter_test

import (
	"encoding/json"
	"testing"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A filter gives an answer for any expression and any object.
func FuzzWhere(f *testing.F) {
	for _, where := range []string{
		`op != "u" || changed("spec")`, `after.spec.replicas > 3`, `before.spec != after.spec`,
		`labels["app"] == "web"`,
		`after.list.all(x, x in [1, "a", null])`, `after.m.exists(k, after.m[k] == "v")`, `changed("a[*].b[*]")`,
		`changedOnly("a.b", 'a["b/c"]')`, `after.?a.?b.orValue([]).size() == 0`, `string(after.a).matches("^x+$")`,
		`namespace == "a" + r'namespace'`, `type(after) == map && after.a + after.b == [1]`, `has(after.a.b)`,
		`after[0] == 1`,
		`timestamp(after.t) > timestamp("2026-01-01T00:00:00Z")`, `{"a": after}["a"] == before`,
		`"%s".format([after]) == "x"`,
	} {
		f.Add(where,
			`{"a":{"b":[1,2.5,"x",null,true,{"c":{}}]},"list":[1,"a"],"m":{"k":"v"},"t":"2026-11-20T15:00:00Z"}`,
			`{"a":[{"b":[1]}],"a":3}`)
	}
	f.Add(`after.a == 1`, `{"a":1e999,"b":-0,"c":1.0}`, `{"\u0061":"\ud800","":[]}`)
	f.Fuzz(func(t *testing.T, where, before, after string) {
		fl, err := filter.New(filter.Options{Where: where, OnError: "drop", Noise: filter.NoiseNames()})
		if err != nil {
			return
		}
		isObject := func(doc string) bool {
			return json.Valid([]byte(doc)) && json.Unmarshal([]byte(doc), &map[string]any{}) == nil
		}
		if !isObject(before) || !isObject(after) {
			return
		}
		x := fl.For(deployments)
		for _, op := range object.Ops() {
			first := x.Withholds(delta(op, before, after))
			if again := x.Withholds(delta(op, before, after)); again != first {
				t.Errorf("%s: %q, then %q", op, first, again)
			}
		}
	})
}
