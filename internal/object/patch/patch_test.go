package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object/patch"
)

func TestAppend(t *testing.T) {
	for _, tc := range []struct{ name, before, after, want string }{
		{"equal", `{"a":1,"b":[{}]}`, `{"a":1,"b":[{}]}`, `[]`},
		{"replace", `{"a":1}`, `{"a":2}`, `[{"op":"replace","path":"/a","value":2}]`},
		{"longer number", `{"a":12}`, `{"a":123}`, `[{"op":"replace","path":"/a","value":123}]`},
		{"number by its literal", `{"a":1}`, `{"a":1.0}`, `[{"op":"replace","path":"/a","value":1.0}]`},
		{"type", `{"a":{"b":1}}`, `{"a":[1]}`, `[{"op":"replace","path":"/a","value":[1]}]`},
		{"to null", `{"a":{}}`, `{"a":null}`, `[{"op":"replace","path":"/a","value":null}]`},
		{
			"nested", `{"a":{"b":[0,{"c":"x"}]},"d":1}`, `{"a":{"b":[0,{"c":"y"}]},"d":1}`,
			`[{"op":"replace","path":"/a/b/1/c","value":"y"}]`,
		},
		{"add last", `{"a":1}`, `{"a":1,"b":2}`, `[{"op":"add","path":"/b","value":2}]`},
		{"add first", `{"b":2}`, `{"a":1,"b":2}`, `[{"op":"add","path":"/a","value":1}]`},
		{"add to nothing", `{}`, `{"b":null}`, `[{"op":"add","path":"/b","value":null}]`},
		{"remove", `{"a":1,"b":2,"c":3}`, `{"a":1,"c":3}`, `[{"op":"remove","path":"/b"}]`},
		{"remove all", `{"a":1}`, `{}`, `[{"op":"remove","path":"/a"}]`},
		{"rename", `{"a":1}`, `{"b":1}`, `[{"op":"remove","path":"/a"},{"op":"add","path":"/b","value":1}]`},
		{"another order", `{"a":1,"b":2}`, `{"b":2,"a":1}`, `[]`},
		{"another order and value", `{"a":1,"b":2}`, `{"b":3,"a":1}`, `[{"op":"replace","path":"/b","value":3}]`},
		{
			"append", `{"a":[1]}`, `{"a":[1,2,3]}`,
			`[{"op":"add","path":"/a/1","value":2},{"op":"add","path":"/a/2","value":3}]`,
		},
		{"cut", `{"a":[1,2,3]}`, `{"a":[1]}`, `[{"op":"remove","path":"/a/2"},{"op":"remove","path":"/a/1"}]`},
		{"insert in the middle", `{"a":[1,2,3]}`, `{"a":[1,9,2,3]}`, `[{"op":"add","path":"/a/1","value":9}]`},
		{"insert at the front", `{"a":[1,2]}`, `{"a":[0,1,2]}`, `[{"op":"add","path":"/a/0","value":0}]`},
		{"take from the middle", `{"a":[1,2,3]}`, `{"a":[1,3]}`, `[{"op":"remove","path":"/a/1"}]`},
		{
			"insert before a change", `{"a":[{"n":1,"v":1}]}`, `{"a":[{"n":0},{"n":1,"v":2}]}`,
			`[{"op":"add","path":"/a/0","value":{"n":0}},{"op":"replace","path":"/a/1/v","value":2}]`,
		},
		{
			"take from between changes", `{"a":[{"n":0,"v":1},{"n":1},{"n":2,"v":1}]}`,
			`{"a":[{"n":0,"v":2},{"n":2,"v":2}]}`,
			`[{"op":"replace","path":"/a/0/v","value":2},{"op":"remove","path":"/a/1"},{"op":"replace","path":"/a/1/v","value":2}]`,
		},
		{"fill an array", `{"a":[]}`, `{"a":[{}]}`, `[{"op":"add","path":"/a/0","value":{}}]`},
		{"equal elements", `{"a":[1,1]}`, `{"a":[1,1,1]}`, `[{"op":"add","path":"/a/2","value":1}]`},
		{
			"pointer", `{"a/b":{"~":1},"":{"":1}}`, `{"a/b":{"~":2},"":{"":2}}`,
			`[{"op":"replace","path":"/a~1b/~0","value":2},{"op":"replace","path":"//","value":2}]`,
		},
		{"escape in a key", `{"a\"\n":1}`, `{"a\"\n":2}`, `[{"op":"replace","path":"/a\"\u000a","value":2}]`},
		{
			"escaped slash", `{"a\u002fb":1,"\u007e":1}`, `{"a/b":2,"~":1}`,
			`[{"op":"replace","path":"/a~1b","value":2}]`,
		},
		{"escaped string", `{"a":"\u00e4\ud83c\udf88\n\/"}`, `{"a":"ä🎈\u000A/"}`, `[]`},
		{"escape of another character", `{"a":"\u00e4"}`, `{"a":"ö"}`, `[{"op":"replace","path":"/a","value":"ö"}]`},
		{"half a pair", `{"a":"\ud800"}`, `{"a":"\ud801"}`, `[{"op":"replace","path":"/a","value":"\ud801"}]`},
		{"space", " { \"a\" : [ 1 , 2 ] }\n", `{"a":[1,3]}`, `[{"op":"replace","path":"/a/1","value":3}]`},
		{"space only", "{\"a\":\t[1, {\"b\" :2}]}", `{"a":[1,{"b":2}] }`, `[]`},
		{"last of duplicates", `{"a":1,"a":2}`, `{"a":3,"a":2}`, `[]`},
		{"last of duplicates replaced", `{"a":1,"a":2}`, `{"a":1,"a":3}`, `[{"op":"replace","path":"/a","value":3}]`},
		{"escaped duplicate", `{"a":1,"\u0061":2}`, `{"a":3,"\u0061":2}`, `[]`},
		{
			"duplicate gone", `{"a":1,"a":2}`, `{"a":1,"b":2}`,
			`[{"op":"replace","path":"/a","value":1},{"op":"add","path":"/b","value":2}]`,
		},
		{
			"add last after a change", `{"x":{"a":1}}`, `{"x":{"a":2,"b":3,"c":{}},"y":1}`,
			`[{"op":"replace","path":"/x/a","value":2},{"op":"add","path":"/x/b","value":3},{"op":"add","path":"/x/c","value":{}},{"op":"add","path":"/y","value":1}]`,
		},
		{
			"remove last after a change", `{"x":{"a":1,"b":3,"c":{}},"y":1}`, `{"x":{"a":2}}`,
			`[{"op":"replace","path":"/x/a","value":2},{"op":"remove","path":"/x/b"},{"op":"remove","path":"/x/c"},{"op":"remove","path":"/y"}]`,
		},
		{"duplicate last", `{"a":1}`, `{"a":2,"a":3}`, `[{"op":"replace","path":"/a","value":3}]`},
		{"escaped duplicate last", `{"a":1,"\u0061":2}`, `{"a":1}`, `[{"op":"replace","path":"/a","value":1}]`},
		{"duplicates last", `{"a":1}`, `{"a":1,"b":2,"b":3}`, `[{"op":"add","path":"/b","value":3}]`},
		{
			"longer duplicate last", `{"a":{"b":[1,2],"x":0}}`, `{"a":{"b":[1,2],"x":1,"b":[1,3]}}`,
			`[{"op":"replace","path":"/a/b/1","value":3},{"op":"replace","path":"/a/x","value":1}]`,
		},
		{"root", `{"a":1}`, `[1]`, `[{"op":"replace","path":"","value":[1]}]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := patch.Append([]byte("x"), []byte(tc.before), []byte(tc.after))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("x"+tc.want, string(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			checkApplies(t, got[1:], []byte(tc.before), []byte(tc.after))
		})
	}
}

func TestAppendErrors(t *testing.T) {
	for _, doc := range []string{
		``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `{"a":"`, `{"a":"\`, `[1`,
		`[1,`,
		`{"a":1}}`, `{"a":1} 2`, `}`, `{"a":]}`, "{\"a\":1}\x00",
	} {
		for _, pair := range [][2]string{{doc, doc}, {doc, `{"a":2}`}, {`{"a":2}`, doc}, {`{"b":0}`, doc}} {
			got, err := patch.Append([]byte("x"), []byte(pair[0]), []byte(pair[1]))
			if err == nil {
				t.Errorf("Append(%q, %q) = %s, want an error", pair[0], pair[1], got)
			} else if string(got) != "x" {
				t.Errorf("Append(%q, %q) with an error gave %s", pair[0], pair[1], got)
			}
		}
	}
}

// Documents far deeper than the patch looks, and far deeper than a stack that recursed over them
// would bear.
func TestAppendDeep(t *testing.T) {
	const levels = 1_000_000
	nest := func(open, leaf, shut string) []byte {
		return []byte(`{"a":` + strings.Repeat(open, levels) + leaf + strings.Repeat(shut, levels) + `}`)
	}
	for _, tc := range []struct{ open, shut string }{{`[`, `]`}, {`{"a":`, `}`}, {`[{"b":0,"a":`, `}]`}} {
		before, after := nest(tc.open, "1", tc.shut), nest(tc.open, "2", tc.shut)
		got, err := patch.Append(nil, before, after)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > len(after)+1024 || bytes.Count(got, []byte(`"op"`)) != 1 {
			t.Errorf("a patch of %d bytes with %d operations", len(got), bytes.Count(got, []byte(`"op"`)))
		}
		got, err = patch.Append(nil, before, before)
		if err != nil || string(got) != "[]" {
			t.Errorf("equal documents: %v", err)
		}
	}
}

// Objects of more members than are looked for one by one, in any order and with duplicates.
func TestAppendWide(t *testing.T) {
	for _, n := range []int{20, 40, 2_000} {
		var before, after, doubled []byte
		for k := range n {
			before = fmt.Appendf(before, `,"k%d":%d`, k, k)
			doubled = fmt.Appendf(doubled, `,"k%d":%d`, k%(n-1), k)
			if k != 3 {
				after = fmt.Appendf(after, `,"k%d":%d`, n-1-k, (n-1-k)/7*7) // backwards, most values changed
			}
		}
		docs := [][]byte{before, after, doubled}
		for i := range docs {
			docs[i][0] = '{'
			docs[i] = append(docs[i], '}')
		}
		for _, a := range docs {
			for _, b := range docs {
				checkApplies(t, mustPatch(t, a, b), a, b)
			}
		}
		before, doubled = docs[0], docs[2]
		last := bytes.Replace(before, []byte(`"k0":0`), []byte(`"k0":1`), 1)
		if got, want := string(mustPatch(t, before, last)), `[{"op":"replace","path":"/k0","value":1}]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		last = bytes.Replace(doubled, []byte(`"k0":0`), []byte(`"k0":1`), 1) // hidden by the last member
		if got := string(mustPatch(t, doubled, last)); got != "[]" {
			t.Errorf("got %s, want []", got)
		}
	}
}

// pairs reads testdata/objects: versions of real objects, as the API server writes them.
func pairs(t testing.TB) map[string][2][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/objects/*.before.json")
	if err != nil || len(names) == 0 {
		t.Fatal("no objects", err)
	}
	out := make(map[string][2][]byte)
	for _, name := range names {
		name = strings.TrimSuffix(name, ".before.json")
		var p [2][]byte
		for i, version := range []string{".before.json", ".after.json"} {
			b, err := os.ReadFile(name + version)
			if err != nil {
				t.Fatal(err)
			}
			p[i] = bytes.TrimSpace(b)
		}
		out[filepath.Base(name)] = p
	}
	return out
}

func TestAppendObjects(t *testing.T) {
	all := pairs(t)
	for name, p := range all {
		t.Run(name, func(t *testing.T) {
			patch := mustPatch(t, p[0], p[1])
			checkApplies(t, patch, p[0], p[1])
			golden(t, "patch-"+name+".json",
				append(bytes.ReplaceAll(patch, []byte(`},{"op"`), []byte("},\n{\"op\"")), '\n'))
			checkApplies(t, mustPatch(t, p[1], p[0]), p[1], p[0])
			for _, doc := range p {
				if got := mustPatch(t, doc, doc); string(got) != "[]" {
					t.Errorf("patch of equal documents: %s", got)
				}
			}
			for _, other := range all {
				checkApplies(t, mustPatch(t, p[0], other[1]), p[0], other[1])
			}
		})
	}
}

func appendPatch(before, after []byte) ([]byte, error) { return patch.Append(nil, before, after) }

func mustPatch(t fataler, before, after []byte) []byte {
	patch, err := appendPatch(before, after)
	if err != nil {
		t.Fatalf("Append(%s, %s): %v", before, after, err)
	}
	return patch
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// checkApplies holds a patch against RFC 6902 as json-patch implements it, and against its bound.
func checkApplies(t fataler, patch, before, after []byte) {
	if len(patch) > len(after)+600 {
		t.Fatalf("a patch of %d bytes for an object of %d\npatch %s\nbefore %s\nafter %s", len(patch), len(after),
			patch, before, after)
	}
	want := decode(t, after)
	if diff := cmp.Diff(want, apply(t, patch, decode(t, before))); diff != "" {
		t.Fatalf("apply(patch, before) is not after\npatch %s\nbefore %s\nafter %s\n-after +got\n%s", patch, before,
			after, diff)
	}
	if bytes.Contains(patch, []byte(`"path":""`)) || bytes.Contains(patch, []byte(`//`)) {
		return // json-patch takes an empty key for the object that holds it
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	// Decoded and encoded, so that json-patch sees no duplicate keys.
	plain, err := json.Marshal(decode(t, before))
	if err != nil {
		t.Fatalf("%v", err)
	}
	got, err := p.Apply(plain)
	if err != nil {
		t.Fatalf("apply: %v\npatch %s\nbefore %s\nafter %s", err, patch, before, after)
	}
	if diff := cmp.Diff(want, decode(t, got)); diff != "" {
		t.Fatalf("by json-patch apply(patch, before) is not after\npatch %s\nbefore %s\nafter %s\n-after +got\n%s",
			patch, before, after, diff)
	}
}

// apply is RFC 6902 to the letter, as far as patches here go: an operation on what is not there
// fails.
func apply(t fataler, patch []byte, doc any) any {
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, op := range ops {
		var value any
		if op.Op != "remove" {
			value = decode(t, op.Value)
		}
		var change func(v any, path []string) any
		change = func(v any, path []string) any {
			if len(path) == 0 {
				return value
			}
			key, last := unescape.Replace(path[0]), len(path) == 1
			switch v := v.(type) {
			case map[string]any:
				old, ok := v[key]
				if ok == (last && op.Op == "add") {
					t.Fatalf("%s %s: there %v, in patch %s", op.Op, op.Path, ok, patch)
				}
				if last && op.Op == "remove" {
					delete(v, key)
				} else {
					v[key] = change(old, path[1:])
				}
				return v
			case []any:
				n, err := strconv.Atoi(key)
				if err != nil || n > len(v) || n == len(v) && !(last && op.Op == "add") {
					t.Fatalf("%s %s: of %d elements, in patch %s", op.Op, op.Path, len(v), patch)
				}
				switch {
				case last && op.Op == "add":
					return slices.Insert(v, n, value)
				case last && op.Op == "remove":
					return slices.Delete(v, n, n+1)
				}
				v[n] = change(v[n], path[1:])
				return v
			}
			t.Fatalf("%s %s: no such place, in patch %s", op.Op, op.Path, patch)
			return nil
		}
		doc = change(doc, strings.Split(op.Path, "/")[1:])
	}
	return doc
}

func decode(t fataler, doc []byte) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode %s: %v", doc, err)
	}
	return v
}
