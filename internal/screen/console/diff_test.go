package console_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// jsonValue draws JSON with the variety of lists in Kubernetes: elements with merge keys, unique or
// not, and keys in any order.
func jsonValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth > 0 {
			kinds = 9
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.SampledFrom([]float64{-1, 0, 1, 12, 123, 1.5}).Draw(t, "number")
		case 3:
			return rapid.SampledFrom([]string{"a\nb\nc\n", "a\nx\nc", "a\n\n", "a"}).Draw(t, "text")
		case 4, 5, 6:
			return rapid.SampledFrom([]string{"", "a", "b", "é\"\\\n", "on"}).Draw(t, "string")
		case 7:
			return rapid.MapOfN(jsonKey(), jsonValue(depth-1), 0, 5).Draw(t, "object")
		case 8:
			return rapid.SliceOfN(jsonValue(depth-1), 0, 5).Draw(t, "list")
		}
		out := []any{}
		for range rapid.IntRange(0, 5).Draw(t, "elements") {
			e := rapid.MapOfN(jsonKey(), jsonValue(depth-1), 0, 3).Draw(t, "element")
			e["name"] = rapid.SampledFrom([]any{"a", "b", "c", "d", "e", 1.0, nil}).Draw(t, "name")
			e["key"] = rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "key")
			out = append(out, e)
		}
		return out
	})
}

func jsonKey() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "b", "name", "type", "key", "metadata", "q\"/~.", "é", ""})
}

// marshal writes v with its members in random order, and sometimes with white space.
func marshal(t *rapid.T, v any) []byte {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")
	var b bytes.Buffer
	var write func(any)
	write = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			b.WriteString("{" + space)
			for n, k := range rapid.Permutation(keys).Draw(t, "order") {
				if n > 0 {
					b.WriteString("," + space)
				}
				write(k)
				b.WriteString(space + ":" + space)
				write(v[k])
			}
			b.WriteString(space + "}")
		case []any:
			b.WriteString("[" + space)
			for n, e := range v {
				if n > 0 {
					b.WriteString("," + space)
				}
				write(e)
			}
			b.WriteString(space + "]")
		default:
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if s := string(raw); s == `"a"` && rapid.Bool().Draw(t, "escaped") {
				raw = []byte(`"\u0061"`)
			}
			b.Write(raw)
		}
	}
	write(v)
	return b.Bytes()
}

func unmarshal(t interface{ Fatalf(string, ...any) }, raw string) any {
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return v
}

// apply applies the nodes to v; nodes[0] is about v. It checks that the values that they replace
// are there.
func apply(t *rapid.T, v any, nodes []console.Node) any {
	if nodes[0].Kind == "changed" {
		if d := cmp.Diff(unmarshal(t, nodes[0].Before), v); d != "" {
			t.Fatalf("before is not what was there: %s", d)
		}
		return unmarshal(t, nodes[0].After)
	}
	if nodes[0].Kind != "inside" {
		t.Fatalf("%s says what has become of something in nothing", nodes[0].Kind)
	}
	var children [][]console.Node
	for k, n := range nodes[1:] {
		if n.Depth == nodes[0].Depth+1 {
			children = append(children, nil)
		}
		children[len(children)-1] = append(children[len(children)-1], nodes[1+k])
	}
	switch v := v.(type) {
	case map[string]any:
		for _, c := range children {
			old, there := v[c[0].Key]
			if there == (c[0].Kind == "added") || c[0].Elem {
				t.Fatalf("%+v, but there: %t", c[0], there)
			}
			switch c[0].Kind {
			case "added":
				v[c[0].Key] = unmarshal(t, c[0].After)
			case "removed":
				if d := cmp.Diff(unmarshal(t, c[0].Before), old); d != "" {
					t.Fatalf("removed something else: %s", d)
				}
				delete(v, c[0].Key)
			default:
				v[c[0].Key] = apply(t, old, c)
			}
		}
		return v
	case []any:
		return applyList(t, v, children)
	}
	t.Fatalf("%T has nothing inside", v)
	return nil
}

func applyList(t *rapid.T, v []any, children [][]console.Node) []any {
	gone, come := map[int]bool{}, map[int]any{}
	var order []int
	for _, c := range children {
		switch n := c[0]; n.Kind {
		case "added":
			come[n.To] = unmarshal(t, n.After)
		case "removed":
			if d := cmp.Diff(unmarshal(t, n.Before), v[n.From]); d != "" {
				t.Fatalf("removed something else: %s", d)
			}
			gone[n.From] = true
		case "ordered":
			order = n.Order
		default:
			v[n.From] = apply(t, v[n.From], c)
		}
	}
	if order == nil {
		for k := range v {
			if !gone[k] {
				order = append(order, k)
			}
		}
	}
	out := []any{}
	for len(order) > 0 || len(come) > 0 {
		if e, ok := come[len(out)]; ok {
			delete(come, len(out))
			out = append(out, e)
			continue
		}
		if len(order) == 0 {
			t.Fatalf("added far behind the end: %v", come)
		}
		out = append(out, v[order[0]])
		order = order[1:]
	}
	return out
}

// Applying the nodes to before produces after. There are none if and only if both mean the same.
func TestDifferenceMakesAfterOfBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := jsonValue(4).Draw(t, "before")
		b := jsonValue(4).Draw(t, "after")
		if rapid.Bool().Draw(t, "edited") {
			b = edit(t, a)
		}
		before, after := marshal(t, a), marshal(t, b)
		nodes, noise, err := console.Difference(before, after, true)
		if err != nil {
			t.Fatalf("%s\n%s\n%v", before, after, err)
		}
		if len(noise) > 0 {
			t.Fatalf("left out: %q", noise)
		}
		va, vb := unmarshal(t, string(before)), unmarshal(t, string(after))
		if same := cmp.Equal(va, vb); same != (len(nodes) == 0) {
			t.Fatalf("same: %t, nodes: %+v\n%s\n%s", same, nodes, before, after)
		}
		if len(nodes) == 0 {
			return
		}
		if d := cmp.Diff(vb, apply(t, va, nodes)); d != "" {
			t.Fatalf("%s\n%s\n%+v\n%s", before, after, nodes, d)
		}
	})
}

// Elements without a merge key are paired by what they have, in whatever order their keys are.
func TestDifferenceOfElementsWithKeysInAnotherOrder(t *testing.T) {
	before := []byte(`[{"key":"k","name":"b"},{"key":"k","name":"c"},{"name":"c","key":"k"}]`)
	after := []byte(`[{"key":"k","name":"b"}, {"name":"c","key":"k"}, {"key":"k","name":"c"}]`)
	nodes, _, err := console.Difference(before, after, true)
	if err != nil || len(nodes) > 0 {
		t.Fatalf("%+v, %v", nodes, err)
	}
}

// edit returns v with a random change.
func edit(t *rapid.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(keysOf(v)) {
			switch rapid.IntRange(0, 5).Draw(t, "edit") {
			case 0:
			case 1:
				out[k] = edit(t, v[k])
			default:
				out[k] = v[k]
			}
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			switch rapid.IntRange(0, 6).Draw(t, "edit") {
			case 0:
			case 1:
				out = append(out, edit(t, e))
			case 2:
				out = append(out, jsonValue(1).Draw(t, "new"), e)
			default:
				out = append(out, e)
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "shuffle") == 0 {
			return rapid.Permutation(out).Draw(t, "shuffled")
		}
		return out
	}
	return jsonValue(1).Draw(t, "replaced")
}

func keysOf(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// No event causes a view to fail, or harmful or too wide text to reach the terminal.
func TestAnyObjectCanBeShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab\n\t\r \x00\x1b\x7f\u009b\u200d\u202e\u2028\u0301日🚀\\\"-:#")))
		a, b := jsonValue(3).Draw(t, "before"), jsonValue(3).Draw(t, "after")
		object := func(v any) json.RawMessage {
			return marshal(t, map[string]any{
				"spec":              v,
				text.Draw(t, "key"): text.Draw(t, "value"),
				"data":              map[string]any{"f": text.Draw(t, "f")},
			})
		}
		columns := rapid.IntRange(0, 120).Draw(t, "columns")
		e := &consume.Event{
			Op:        rapid.SampledFrom([]consume.Op{"c", "u", "d", "r", "e", "l", "?\x1b"}).Draw(t, "op"),
			Resource:  text.Draw(t, "resource"),
			Namespace: text.Draw(t, "namespace"),
			Name:      text.Draw(t, "name"),
			Cluster:   text.Draw(t, "cluster"),
			UID:       text.Draw(t, "uid"),
		}
		e.Data = &consume.Data{
			Op: e.Op, Before: object(a), After: object(b), DataRef: text.Draw(t, "dataref"),
			ChangedBy: []consume.Change{{Manager: text.Draw(t, "manager"), Operation: text.Draw(t, "operation")}},
		}
		if rapid.Bool().Draw(t, "patch") {
			e.Data.Before = nil
			path := "/" + strings.NewReplacer("~", "~0").Replace(text.Draw(t, "path"))
			e.Data.Patch = marshal(t, []any{map[string]any{"op": "add", "path": path, "value": a}, map[string]any{
				"op":   "remove",
				"path": "/spec/0",
			}})
		}
		var out bytes.Buffer
		for _, view := range []console.View{console.Lines, console.Diff} {
			for _, wide := range []bool{false, true} {
				o := &terminal.Output{Writer: &out, Width: columns, Color: true}
				p := console.New(o, console.Options{View: view, Wide: wide, Reads: true})
				out.Reset()
				if err := p.Print(e); err != nil {
					t.Fatal(err)
				}
				if err := p.Finish(); err != nil {
					t.Fatal(err)
				}
				most := columns
				if wide {
					most = 0
				}
				harmless(t, out.String(), most)
			}
		}
	})
}

// Broken JSON causes an error or a meaningless difference, never a panic.
func FuzzDifference(f *testing.F) {
	f.Add([]byte(`{"a":[{"name":"x"}]}`), []byte(`{"a":[{"name":"y","v":1},{"name":"x"}]}`))
	f.Add([]byte(`{"a":`), []byte(`{"a":1`))
	f.Add([]byte(`[1,2,3]`), []byte(`[1,[2],"\ud800"]`))
	f.Add([]byte(`[{"op":"add","path":"/a/0","value":1}]`), []byte(`{"a":[1]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		nodes, _, err := console.Difference(a, b, false)
		if json.Valid(a) && json.Valid(b) && err != nil &&
			strings.Count(string(a)+string(b), "[")+strings.Count(string(a)+string(b), "{") < 50 {
			t.Errorf("%v", err)
		}
		_ = nodes
		_, _ = console.Patched(a, b)
		_ = console.ToYAML(a)
	})
}

func TestDifferenceNamesElements(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{
			"a mount is told by its path where a volume is mounted twice",
			`{"m":[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b"}]}`,
			`{"m":[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b","readOnly":true}]}`,
			"    m[/b]:\n  +   readOnly: true\n",
		},
		{
			"ports by number", `{"ports":[{"containerPort":80},{"containerPort":81}]}`,
			`{"ports":[{"containerPort":80,"protocol":"UDP"}]}`,
			"    ports[80]:\n  +   protocol: UDP\n    ports:\n  -   - containerPort: 81\n",
		},
		{
			"without a key by place", `{"l":[[1],[2],[3]]}`, `{"l":[[1],[5],[3]]}`,
			"    l[1]:\n  -   - 2\n  +   - 5\n",
		},
		{
			"the order alone", `{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a"}]}`,
			"    c:\n  ~   order: b, a\n",
		},
		{
			"keys that are no words", `{"metadata":{"annotations":{"a.b/c":{"d":1}}}}`,
			`{"metadata":{"annotations":{"a.b/c":{"d":2}}}}`,
			"    metadata.annotations[\"a.b/c\"]:\n  -   d: 1\n  +   d: 2\n",
		},
		{
			"noise", `{"metadata":{"resourceVersion":"1","generation":1},"spec":{"metadata":{"generation":1}}}`,
			`{"metadata":{"resourceVersion":"2","generation":2},"spec":{"metadata":{"generation":2}}}`,
			"    spec.metadata:\n  -   generation: 1\n  +   generation: 2\n",
		},
		{
			"only noise", `{"metadata":{"resourceVersion":"1","generation":1}}`,
			`{"metadata":{"resourceVersion":"2","managedFields":[]}}`,
			"    only metadata.resourceVersion, metadata.generation, metadata.managedFields\n",
		},
		{"the same in another order", `{"a":1,"b":2}`, `{"b":2,"a":1}`, "    no difference\n"},
		{
			"text that lost its end", `{"t":"a\nb\n"}`, `{"t":"a\nb"}`,
			"    t: |\n      a\n  -   b\n  +   b (no line end)\n",
		},
		{"a number that begins like another", `{"a":1,"b":2}`, `{"a":12,"b":2}`, "  - a: 1\n  + a: 12\n"},
		{
			"of members with one key the last counts", `{"a":1,"a":2,"b":3}`, `{"\u0061":2,"b":4}`,
			"  - b: 3\n  + b: 4\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &consume.Event{Op: consume.Updated, Resource: "x", Name: "y", Data: &consume.Data{
				Op: consume.Updated, Before: []byte(c.before), After: []byte(c.after),
			}}
			got := show(t, &terminal.Output{Width: 80}, console.Options{View: console.Diff}, e)
			_, got, _ = strings.Cut(got, "\n") // the day
			_, got, _ = strings.Cut(got, "\n") // the event's line
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestPatchWithoutBefore(t *testing.T) {
	const after = `{"metadata":{"labels":{"a/b":"1"}},"spec":{"replicas":5,"containers":[{"name":"web","image":"v2"},{"name":"new"}],"l":[1,2]}}`
	for _, c := range []struct{ patch, want string }{
		{`[{"op":"replace","path":"/spec/replicas","value":5}]`, "    spec:\n  ~   replicas: 5\n"},
		{
			`[{"op":"replace","path":"/spec/containers/0/image","value":"v2"}]`,
			"    spec.containers[web]:\n  ~   image: v2\n",
		},
		{ // the elements may have moved, so they are not named
			`[{"op":"replace","path":"/spec/containers/0/image","value":"v2"},{"op":"add","path":"/spec/containers/1","value":{"name":"new"}}]`,
			"    spec.containers[0]:\n  ~   image: v2\n    spec.containers:\n  +   - name: new\n",
		},
		{
			`[{"op":"add","path":"/metadata/labels/a~1b","value":"1"},{"op":"remove","path":"/spec/paused"}]`,
			"    metadata.labels:\n  +   a/b: \"1\"\n    spec:\n  -   paused: …\n",
		},
		{`[{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]`, "    only metadata.resourceVersion\n"},
		{`[{"op":"replace","path":"","value":{"a":1}}]`, "  ~ a: 1\n"},
		{`[]`, "    no difference\n"},
	} {
		e := &consume.Event{Op: consume.Updated, Resource: "x", Name: "y", Data: &consume.Data{
			Op: consume.Updated, After: []byte(after), Patch: []byte(c.patch),
		}}
		got := show(t, &terminal.Output{}, console.Options{View: console.Diff}, e)
		_, got, _ = strings.Cut(got, "\n")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.patch, d)
		}
	}
}

// Wide output shows the whole difference of a text: its lines reproduce both texts.
func TestTextDifferenceMakesBothTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "", "  d"}), 2, 40),
			func(lines []string) string {
				return strings.Join(lines, "\n") + "\n"
			})
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		if a == b {
			t.Skip("nothing differs")
		}
		var out bytes.Buffer
		p := console.New(&terminal.Output{Writer: &out}, console.Options{View: console.Diff, Wide: true})
		err := p.Print(&consume.Event{Op: consume.Updated, Data: &consume.Data{
			Op: consume.Updated, Before: marshal(t, map[string]any{"t": a}), After: marshal(t, map[string]any{"t": b}),
		}})
		if err == nil {
			err = p.Finish()
		}
		if err != nil {
			t.Fatal(err)
		}
		var before, after strings.Builder
		for _, line := range slices.Collect(strings.Lines(out.String()))[2:] {
			line = strings.TrimSuffix(line, "\n")
			sign, rest := byte(' '), ""
			if len(line) > 2 {
				sign = line[2]
				rest = strings.TrimPrefix(line[3:], "   ")
			}
			if sign != '+' {
				fmt.Fprintln(&before, rest)
			}
			if sign != '-' {
				fmt.Fprintln(&after, rest)
			}
		}
		if before.String() != a || after.String() != b {
			t.Fatalf("%q and %q are shown as\n%s", a, b, out.String())
		}
	})
}

// Each pair of real objects of the encoder's tests has a difference.
func TestRealObjects(t *testing.T) {
	files, err := filepath.Glob("../../object/patch/testdata/objects/*.before.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no objects", err)
	}
	for _, file := range files {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(strings.Replace(file, ".before.", ".after.", 1))
		if err != nil {
			t.Fatal(err)
		}
		nodes, _, err := console.Difference(before, after, false)
		if err != nil || len(nodes) == 0 {
			t.Errorf("%s: %v, %d nodes", file, err, len(nodes))
		}
	}
}
