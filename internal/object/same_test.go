package object_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/object"
)

func mask(tb testing.TB, paths ...string) *object.Mask {
	tb.Helper()
	m, err := object.NewMask(paths...)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestSameBut(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b string
		mask []string
		want bool
	}{
		{name: "same bytes", a: `{"a":{"b":[1,2]}}`, b: `{"a":{"b":[1,2]}}`, want: true},
		{name: "another value", a: `{"a":1}`, b: `{"a":2}`},
		{name: "a longer number", a: `{"a":1}`, b: `{"a":12}`},
		{name: "a fraction", a: `{"a":1}`, b: `{"a":1.5}`},
		{name: "an exponent", a: `[1]`, b: `[1e1]`},
		{
			name: "a longer number beside what is masked",
			a:    `{"s":1,"a":1,"b":2}`,
			b:    `{"s":2,"a":12,"b":2}`,
			mask: []string{"s"},
		},
		{name: "one more member and another order", a: `{"b":1,"a":1}`, b: `{"a":1,"b":1,"c":1}`},
		{name: "another type", a: `{"a":"1"}`, b: `{"a":1}`},
		{name: "object and array", a: `{"a":{}}`, b: `{"a":[]}`},
		{name: "null and absent", a: `{"a":null}`, b: `{}`},
		{name: "null and false", a: `{"a":null}`, b: `{"a":false}`},
		{name: "one more member", a: `{"a":1}`, b: `{"a":1,"b":2}`},
		{name: "one member less", a: `{"a":1,"b":2}`, b: `{"b":2}`},
		{name: "one more element", a: `[1]`, b: `[1,1]`},
		{name: "elements in another order", a: `[1,2]`, b: `[2,1]`},
		{name: "members in another order", a: `{"a":1,"b":{"c":1,"d":2}}`, b: `{"b":{"d":2,"c":1},"a":1}`, want: true},
		{name: "members in another order, one differs", a: `{"a":1,"b":{"c":1,"d":2}}`, b: `{"b":{"d":3,"c":1},"a":1}`},
		{name: "white space", a: ` { "a" : [ 1 , "x" ] } `, b: `{"a":[1,"x"]}`, want: true},
		{name: "escapes", a: `{"\u0061":"\u0062\n"}`, b: `{"a":"b\u000a"}`, want: true},
		{name: "escapes that differ", a: `{"a":"\u0062"}`, b: `{"a":"c"}`},
		{name: "masked value", a: `{"a":1,"s":1}`, b: `{"a":1,"s":2}`, mask: []string{"s"}, want: true},
		{name: "masked on one side", a: `{"a":1,"s":1}`, b: `{"a":1}`, mask: []string{"s"}, want: true},
		{name: "masked before others", a: `{"s":1,"t":2,"a":1}`, b: `{"t":1,"a":1}`, mask: []string{
			"s", "t",
		}, want: true},
		{name: "masked and something else", a: `{"a":1,"s":1}`, b: `{"a":2,"s":2}`, mask: []string{"s"}},
		{name: "masked, other order", a: `{"a":1,"s":1,"b":2}`, b: `{"b":2,"a":1,"s":2}`, mask: []string{
			"s",
		}, want: true},
		{
			name: "masked inside",
			a:    `{"m":{"rv":"1","n":"x"},"z":1}`,
			b:    `{"m":{"rv":"2","n":"x"},"z":1}`,
			mask: []string{"m.rv"},
			want: true,
		},
		{name: "masked inside, the object around it on one side", a: `{"m":{"rv":"1"}}`, b: `{}`, mask: []string{
			"m.rv",
		}},
		{
			name: "masked in each element",
			a:    `{"c":[{"t":1,"x":1},{"t":2}]}`,
			b:    `{"c":[{"t":3,"x":1},{"x":0}]}`,
			mask: []string{"c[*].t"},
		},
		{
			name: "masked in each element only",
			a:    `{"c":[{"t":1,"x":1},{"t":2}]}`,
			b:    `{"c":[{"x":1},{"t":4}]}`,
			mask: []string{"c[*].t"},
			want: true,
		},
		{name: "masked elements", a: `{"c":[1,2]}`, b: `{"c":[]}`, mask: []string{"c[*]"}, want: true},
		{name: "masked elements of another kind", a: `{"c":[1,2]}`, b: `{"c":{}}`, mask: []string{"c[*]"}},
		{name: "masked members", a: `{"c":{"x":1}}`, b: `{"c":{"y":[2]}}`, mask: []string{"c[*]"}, want: true},
		{name: "masked by escaped names", a: `{"\u0073":1}`, b: `{"s":2}`, mask: []string{"s"}, want: true},
		{name: "the last of one name", a: `{"a":1,"a":2}`, b: `{"a":2,"a":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := mask(t, tc.mask...)
			for range 2 {
				got, err := object.SameBut([]byte(tc.a), []byte(tc.b), m)
				if err != nil || got != tc.want {
					t.Errorf("%s, %s but for %v: %v, %v", tc.a, tc.b, tc.mask, got, err)
				}
				tc.a, tc.b = tc.b, tc.a
			}
		})
	}
	if same, err := object.SameBut([]byte(`{"a":1}`), []byte(`{"a":1}`), nil); !same || err != nil {
		t.Error("nil mask:", same, err)
	}
	if _, err := object.NewMask("a[", ".b"); err == nil || strings.Count(err.Error(), "column") != 2 {
		t.Error("bad paths:", err)
	}
}

func TestSameButTellsOfDamage(t *testing.T) {
	const good = `{"a":1,"b":{"c":[1,"x"]}}`
	for i := range len(good) {
		bad := good[:i]
		if same, err := object.SameBut([]byte(good), []byte(bad), nil); same ||
			err == nil && i > 0 && strings.HasPrefix(good, strings.TrimRight(bad, "1x")) &&
				len(strings.TrimRight(bad, "1x")) == i {
			t.Errorf("%s: %v, %v", bad, same, err)
		}
		if same, err := object.SameBut([]byte(bad), []byte(good), mask(t, "b.c")); same || err == nil {
			t.Errorf("%s: %v, %v", bad, same, err)
		}
	}
	deep := strings.Repeat("[", 20_000)
	other := strings.Repeat("[", 20_000) + "1"
	if same, err := object.SameBut([]byte(deep), []byte(other), nil); same || err == nil {
		t.Errorf("deep: %v, %v", same, err)
	}
}

func TestSameButAllocatesNothing(t *testing.T) {
	pod := sample(t, "pod")
	other := []byte(strings.Replace(string(pod), `"phase":"`, `"phase":"X`, 1))
	if string(other) == string(pod) {
		t.Fatal("the sample has no phase")
	}
	m := mask(t, "metadata.resourceVersion", "metadata.managedFields", "status")
	if n := testing.AllocsPerRun(100, func() {
		if same, err := object.SameBut(pod, other, m); !same || err != nil {
			t.Error(same, err)
		}
		if same, err := object.SameBut(pod, other, nil); same || err != nil {
			t.Error(same, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// pruned returns the tree v without the values that paths name.
func pruned(tb testing.TB, v any, paths []string) any {
	tb.Helper()
	for _, path := range paths {
		v = without(v, steps(tb, path))
	}
	return v
}

func FuzzSame(f *testing.F) {
	pod := sample(f, "pod")
	f.Add(pod, sample(f, "pod-sibling"), "status\nmetadata.name")
	f.Add(pod, []byte(strings.ReplaceAll(string(pod), ",", " ,\n")), "status")
	f.Add([]byte(`{"a":[{"b":1}],"c":2}`), []byte(`{"c":3,"a":[{"b":2}]}`), "a[*].b\nc")
	f.Add([]byte(`{"a":"\ud800","a":1}`), []byte("{\"\\u0061\":\"\xff\"}"), "x")
	f.Add([]byte(`[1e5,-0.0]`), []byte(`[1e5 , -0.0 ]`), "a[*]")
	f.Fuzz(func(t *testing.T, a, b []byte, list string) {
		paths := strings.Split(list, "\n")
		m, err := object.NewMask(paths...)
		if err != nil {
			m, paths = nil, nil
		}
		same, err := object.SameBut(a, b, m)
		if json.Valid(a) && json.Valid(b) {
			want := reflect.DeepEqual(pruned(t, decode(t, a), paths), pruned(t, decode(t, b), paths))
			if err != nil || same != want && (same || !repeats(a) && !repeats(b)) {
				t.Fatalf("%q and %q but for %q: %v, %v, want %v", a, b, paths, same, err, want)
			}
		}
		if same && err != nil {
			t.Fatalf("%q and %q: the same, and %v", a, b, err)
		}
		for _, raw := range [][]byte{a, b} {
			if self, err := object.SameBut(raw, raw, m); json.Valid(raw) && (!self || err != nil) {
				t.Fatalf("%q and itself: %v, %v", raw, self, err)
			}
		}
		path, err := object.NewPath(list)
		if err != nil || !json.Valid(a) || !json.Valid(b) {
			return
		}
		checkPath(t, a, b, list, path)
	})
}

// only returns the part of a tree that path names, or nil if there is none. Elements keep their
// places.
func only(v any, path []step) any {
	if len(path) == 0 {
		return [1]any{v}
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			if found := only(value, path[1:]); found != nil && (path[0].each || path[0].name == name) {
				out[name] = found
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		out := map[int]any{}
		for i, value := range v {
			if found := only(value, path[1:]); found != nil && path[0].each {
				out[i] = found
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// some reports whether value equals one of the values that path names.
func some(v any, path []step, value any) bool {
	if len(path) == 0 {
		return reflect.DeepEqual(v, value)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inside := range v {
			if (path[0].each || path[0].name == name) && some(inside, path[1:], value) {
				return true
			}
		}
	case []any:
		for _, inside := range v {
			if path[0].each && some(inside, path[1:], value) {
				return true
			}
		}
	}
	return false
}

func checkPath(t *testing.T, a, b []byte, text string, path *object.Path) {
	t.Helper()
	way := steps(t, text)
	want := reflect.DeepEqual(only(decode(t, a), way), only(decode(t, b), way))
	same, err := object.SameAt(a, b, path)
	if err != nil || same != want && (same || !repeats(a) && !repeats(b)) {
		t.Fatalf("%q and %q at %q: %v, %v, want %v", a, b, text, same, err, want)
	}
	value, err := object.Locate(a, path)
	if err != nil {
		t.Fatalf("%q at %q: %v", a, text, err)
	}
	tree := decode(t, a)
	if repeats(a) && strings.Contains(text, "[*]") {
		return // Locate returns the first value, which may be in a repeated member
	}
	if value == nil {
		if only(tree, way) != nil {
			t.Fatalf("%q at %q: nothing", a, text)
		}
		return
	}
	if !some(tree, way, decode(t, value)) {
		t.Fatalf("%q at %q: %q", a, text, value)
	}
}

func TestLocate(t *testing.T) {
	const doc = `{"metadata":{"name":"n","labels":{"a.b":"x"}},"spec":{"c":[{"e":1},{"e":[2]},{"f":null}]},"spec2":{}, "d\u0061ta":{"k":"\u0061"}}`
	for _, tc := range []struct{ path, want string }{
		{"metadata.name", `"n"`},
		{`metadata.labels["a.b"]`, `"x"`},
		{"spec.c", `[{"e":1},{"e":[2]},{"f":null}]`},
		{"spec.c[*].e", `1`},
		{"spec.c[*].f", `null`},
		{"spec.c[*].e[*]", `2`},
		{"spec2", `{}`},
		{"spec2.x", ``},
		{"data.k", `"\u0061"`},
		{"data[*]", `"\u0061"`},
		{"spec.c.e", ``},
		{"nothing[*].x", ``},
	} {
		p, err := object.NewPath(tc.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := object.Locate([]byte(doc), p)
		if err != nil || string(got) != tc.want || (got == nil) != (tc.want == "") {
			t.Errorf("%s: %s, %v, want %s", tc.path, got, err, tc.want)
		}
		if p.String() != tc.path {
			t.Errorf("%s is %s", tc.path, p)
		}
	}
	for _, tc := range []struct{ doc, path, want string }{
		{`{"a":1,"a":2}`, "a", "2"},
		{`{"a":{"b":1},"\u0061":{"b":2}}`, "a.b", "2"},
		{`{"a":{"b":1},"x":{"b":2}}`, "a.b", "1"},
		{`{"a/b":1,"a\/b":2}`, `["a/b"]`, "2"},
		{"{\"\\n\":1,\"\\u000a\":2}", `["\n"]`, "2"},
		{`{"a\"b":1,"a\u0022b":2}`, `["a\"b"]`, "2"},
		{"{\"\ufffd\":1,\"\xff\":2}", "\ufffd", "2"},
	} {
		p, err := object.NewPath(tc.path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := object.Locate([]byte(tc.doc), p); err != nil || string(got) != tc.want {
			t.Errorf("%s of %s: %s, %v, want %s", tc.path, tc.doc, got, err, tc.want)
		}
	}
	p, err := object.NewPath("spec.c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := object.Locate([]byte(`{"spec":{"c":[1}}`), p); err == nil {
		t.Error("truncated: no error")
	}
	if _, err := object.NewPath("a["); err == nil {
		t.Error("bad path: no error")
	}
}

func TestSameAt(t *testing.T) {
	for _, tc := range []struct {
		a, b, path string
		want       bool
	}{
		{`{"a":1,"b":1}`, `{"a":1,"b":2}`, "a", true},
		{`{"a":1,"b":1}`, `{"a":1,"b":2}`, "b", false},
		{`{"a":{"x":1,"y":2}}`, `{"a":{"y":2,"x":1}}`, "a", true},
		{`{"a":null}`, `{}`, "a", false},
		{`{"a":{}}`, `{}`, "a.b", true},
		{`{"a":{"b":1}}`, `{}`, "a.b", false},
		{`{"a":{"b":1}}`, `{"a":[1]}`, "a.b", false},
		{`{"c":[{"i":1,"n":1},{"i":2}]}`, `{"c":[{"i":1,"n":2},{"i":2},{"n":3}]}`, "c[*].i", true},
		{`{"c":[{"i":1},{"i":2}]}`, `{"c":[{"i":1}]}`, "c[*].i", false},
		{`{"c":[{"i":1},{"i":2}]}`, `{"c":[{"i":2},{"i":1}]}`, "c[*].i", false},
		{`{"c":{"x":{"i":1},"y":{"i":2}}}`, `{"c":{"y":{"i":2,"n":1},"x":{"i":1}}}`, "c[*].i", true},
		{`{"c":{"x":{"i":1}}}`, `{"c":[{"i":1}]}`, "c[*].i", false},
		{`{"c":{"x":{}}}`, `{"c":[{}]}`, "c[*].i", true},
		{`{"c":{"":{"i":1}}}`, `{"c":[{"i":1}]}`, "c[*].i", false},
	} {
		p, err := object.NewPath(tc.path)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := object.SameAt([]byte(tc.a), []byte(tc.b), p); err != nil || got != tc.want {
				t.Errorf("%s, %s at %s: %v, %v", tc.a, tc.b, tc.path, got, err)
			}
			tc.a, tc.b = tc.b, tc.a
		}
	}
}

// SameBut detects every change outside of a mask, and none inside.
func TestSameButSeesEachChange(t *testing.T) {
	var pod map[string]any
	if err := json.Unmarshal(sample(t, "pod"), &pod); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	m := mask(t, "status", "metadata.resourceVersion", "spec.containers[*].image")
	masked := func(path string) bool {
		return strings.HasPrefix(path, "/status") || path == "/metadata/resourceVersion" ||
			strings.HasPrefix(path, "/spec/containers/") && strings.HasSuffix(path, "/image")
	}
	rapid.Check(t, func(t *rapid.T) {
		var other map[string]any
		if err := json.Unmarshal(raw, &other); err != nil {
			t.Fatal(err)
		}
		path, at := "", any(other)
		for { // descend to a leaf, or stop earlier
			var set func(any)
			var next any
			switch v := at.(type) {
			case map[string]any:
				name := rapid.SampledFrom(sortedKeys(v)).Draw(t, "name")
				path, next = path+"/"+name, v[name]
				set = func(to any) { v[name] = to }
			case []any:
				i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
				path, next = fmt.Sprintf("%s/%d", path, i), v[i]
				set = func(to any) { v[i] = to }
			}
			leaf := reflect.ValueOf(next).Kind() != reflect.Map && reflect.ValueOf(next).Kind() != reflect.Slice
			if !leaf && reflect.ValueOf(next).Len() > 0 && rapid.IntRange(0, 4).Draw(t, "deeper") > 0 {
				at = next
				continue
			}
			set(rapid.SampledFrom([]any{"changed", 4711, nil, []any{"x"}, map[string]any{"x": 1}}).Draw(t, "to"))
			break
		}
		changed, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		same, err := object.SameBut(raw, changed, m)
		if err != nil || same != masked(path) {
			t.Fatalf("%s: %v, %v", path, same, err)
		}
	})
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
