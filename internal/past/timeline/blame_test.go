package timeline_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/object/patch"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// An oracle replays the patches of a random history. It keeps the origin of each JSON pointer, and
// finds the pointer of each line by its indentation.
func TestBlame(t *testing.T) {
	for range 2 { // of 100 histories each, unless the flag says otherwise
		rapid.Check(t, blameOfAHistory)
	}
}

func blameOfAHistory(t *rapid.T) {
	var b timeline.Blame
	var document any
	origins := map[string]int{}
	versions := rapid.IntRange(1, 12).Draw(t, "versions")
	for n := range versions {
		was := marshal(t, document)
		if document == nil {
			document = map[string]any{}
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			document = mutate(t, document, 3)
		}
		v := version(n, consume.Updated, document)
		if n == 0 {
			v.Op, v.PreviousResourceVersion = consume.Created, ""
			set(origins, "", document, n)
		} else {
			if rapid.Bool().Draw(t, "with before") {
				v.Before = was
			}
			replay(t, origins, was, v.After, n)
		}
		if err := b.Add(v); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := b.Lines()
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, l := range lines {
		text = append(text, l.Text)
	}
	want, err := yaml.JSONToYAML(marshal(t, document))
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), strings.Join(text, "\n")+"\n"); diff != "" {
		t.Fatalf("-YAML +blame\n%s", diff)
	}
	for n, pointer := range pointers(text) {
		o := lines[n].Origin
		if want := fmt.Sprint(100 + origins[pointer]); o == nil || !o.Exact || o.Version.ResourceVersion != want {
			t.Fatalf("%s\nline %d (%s) is of %+v, want %s", want, n, pointer, o, want)
		}
	}
}

func version(n int, op consume.Op, document any) *timeline.Version {
	v := &timeline.Version{
		Object: consume.Object{Source: source, Resource: "pods", Namespace: "shop", Name: "web", UID: "1"}, Op: op,
		ID:                      fmt.Sprintf("pods/1/%d", 100+n),
		Time:                    noon.Add(time.Duration(n) * time.Minute),
		ResourceVersion:         fmt.Sprint(100 + n),
		PreviousResourceVersion: fmt.Sprint(100 + n - 1),
		ChangedBy: []consume.Change{{
			Manager:   fmt.Sprint("m", n),
			Operation: "Update",
		}},
	}
	if document != nil {
		raw, err := json.Marshal(document)
		if err != nil {
			panic(err)
		}
		v.After = raw
	}
	return v
}

func marshal(t *rapid.T, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// value draws a value for which each line of YAML has a key, a scalar or both.
func value(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 5+min(depth, 1)*3).Draw(t, "kind") {
	case 0:
		return rapid.IntRange(0, 3).Draw(t, "number")
	case 1:
		return nil
	case 2:
		return "first\nsecond\n"
	case 6, 7:
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			out[key(t)] = value(t, depth-1)
		}
		return out
	case 8:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			out = append(out, value(t, depth-1))
		}
		return out
	}
	return rapid.SampledFrom([]string{"a", "b", "yes", ""}).Draw(t, "text")
}

func key(t *rapid.T) string {
	return rapid.SampledFrom([]string{"name", "image", "a/b", "c~d", "e10", "e9"}).Draw(t, "key")
}

// mutate changes something in an object or array.
func mutate(t *rapid.T, v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		k := key(t)
		old, exists := v[k]
		switch {
		case exists && rapid.Bool().Draw(t, "inside"):
			v[k] = mutate(t, old, depth-1)
		case exists && rapid.Bool().Draw(t, "remove"):
			delete(v, k)
		default:
			v[k] = value(t, depth)
		}
		return v
	case []any:
		n := rapid.IntRange(0, len(v)).Draw(t, "index")
		switch {
		case n == len(v) || rapid.IntRange(0, 2).Draw(t, "insert") == 0:
			return slices.Insert(slices.Clone(v), n, value(t, depth-1))
		case rapid.Bool().Draw(t, "delete"):
			return slices.Delete(slices.Clone(v), n, n+1)
		}
		v[n] = mutate(t, v[n], depth-1)
		return v
	}
	return value(t, depth)
}

func escape(step string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(step) }

// set assigns a value and everything in it to version n.
func set(origins map[string]int, pointer string, v any, n int) {
	origins[pointer] = n
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			set(origins, pointer+"/"+escape(k), child, n)
		}
	case []any:
		for k, child := range v {
			set(origins, fmt.Sprint(pointer, "/", k), child, n)
		}
	}
}

// replay applies a patch to the origins of pointers. It moves the elements after an inserted or
// removed one.
func replay(t *rapid.T, origins map[string]int, before, after []byte, n int) {
	patch, err := patch.Append(nil, before, after)
	if err != nil {
		t.Fatal(err)
	}
	var operations []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(patch, &operations); err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(before, &document); err != nil {
		t.Fatal(err)
	}
	for _, o := range operations {
		at := strings.LastIndexByte(o.Path, '/')
		list, isList := lookup(document, o.Path[:max(at, 0)]).([]any)
		index, _ := strconv.Atoi(o.Path[at+1:])
		if o.Op != "add" || !isList {
			for pointer := range origins {
				if pointer == o.Path || strings.HasPrefix(pointer, o.Path+"/") {
					delete(origins, pointer)
				}
			}
		}
		if isList && o.Op != "replace" {
			by := map[string]int{"add": 1, "remove": -1}[o.Op]
			moved := map[string]int{}
			for k := index; k <= len(list); k++ {
				from := fmt.Sprint(o.Path[:at+1], k)
				for pointer, origin := range origins {
					if pointer == from || strings.HasPrefix(pointer, from+"/") {
						moved[fmt.Sprint(o.Path[:at+1], k+by)+pointer[len(from):]] = origin
						delete(origins, pointer)
					}
				}
			}
			for pointer, origin := range moved {
				origins[pointer] = origin
			}
		}
		document = apply(document, o.Op, strings.Split(o.Path, "/")[1:], o.Value)
		if o.Op != "remove" {
			set(origins, o.Path, o.Value, n)
		}
	}
}

func lookup(v any, pointer string) any {
	for step := range strings.SplitSeq(pointer, "/") {
		if step == "" && pointer == "" {
			return v
		}
		switch in := v.(type) {
		case map[string]any:
			if step != "" {
				v = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
			}
		case []any:
			n, _ := strconv.Atoi(step)
			v = in[n]
		}
	}
	return v
}

func apply(v any, op string, steps []string, to any) any {
	if len(steps) == 0 {
		return to
	}
	step := strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[0])
	last := len(steps) == 1
	switch in := v.(type) {
	case map[string]any:
		if last && op == "remove" {
			delete(in, step)
		} else {
			in[step] = apply(in[step], op, steps[1:], to)
		}
		return in
	case []any:
		n, _ := strconv.Atoi(step)
		switch {
		case last && op == "remove":
			return slices.Delete(in, n, n+1)
		case last && op == "add":
			return slices.Insert(in, n, to)
		}
		in[n] = apply(in[n], op, steps[1:], to)
		return in
	}
	return to
}

// pointers returns a pointer for each line of YAML: that of the innermost key or element that
// begins there.
func pointers(lines []string) []string {
	type level struct {
		indent  int
		pointer string
		next    int // element
	}
	out := make([]string, len(lines))
	stack := []level{{indent: -1}}
	block := -1
	for n, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if block >= 0 && (indent > block || line == "") { // inside a text of several lines
			out[n] = out[n-1]
			continue
		}
		block = -1
		rest := line[indent:]
		// A list has the indentation of its key. Only the next key at that indentation ends the
		// key.
		isInside := func(l level) bool {
			return l.indent < indent || l.indent == indent && strings.HasPrefix(rest, "-")
		}
		for len(stack) > 1 && !isInside(stack[len(stack)-1]) {
			stack = stack[:len(stack)-1]
		}
		for strings.HasPrefix(rest, "- ") || rest == "-" {
			at := 0
			for k := len(stack) - 1; k >= 0 && stack[k].indent >= indent; k-- {
				if stack[k].next > 0 && stack[k].indent == indent { // the element before
					at = stack[k].next
					stack = stack[:k]
				}
			}
			stack = append(stack, level{indent, fmt.Sprint(stack[len(stack)-1].pointer, "/", at), at + 1})
			indent += 2
			rest = strings.TrimPrefix(strings.TrimPrefix(rest, "-"), " ")
		}
		k, v, hasColon := strings.Cut(rest, ":")
		isMember := hasColon && (v == "" || v[0] == ' ')
		if isMember && !strings.HasPrefix(rest, `"`) {
			stack = append(stack, level{indent, stack[len(stack)-1].pointer + "/" + escape(strings.Trim(k, `'"`)), 0})
			rest = v
		}
		if strings.HasSuffix(rest, "|") || strings.HasSuffix(rest, "|-") {
			block = indent
			if strings.HasPrefix(strings.TrimLeft(line, " "), "- |") {
				block = indent - 2
			}
		}
		out[n] = stack[len(stack)-1].pointer
	}
	return out
}

// The YAML of any object has an origin in each line, and equals kubectl's.
func TestBlameOfAnyObject(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"a: b", "- a", "#", "yes", "1e3", "~", "a\nb", "a\n\n b\n", "\t", "'", "|", "0x1",
	}))
	// no API has such keys
	key := text.Filter(func(s string) bool { return !strings.ContainsAny(s, "\n\r\u0085\u2028\u2029") })
	var anything func(depth int) *rapid.Generator[any]
	anything = func(depth int) *rapid.Generator[any] {
		scalar := rapid.OneOf(rapid.Map(text, func(s string) any { return s }),
			rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Just(any(nil)), rapid.Just(any(1.5)))
		if depth == 0 {
			return scalar
		}
		return rapid.OneOf(scalar,
			rapid.Map(rapid.MapOfN(key, anything(depth-1), 0, 4), func(m map[string]any) any { return m }),
			rapid.Map(rapid.SliceOfN(anything(depth-1), 0, 4), func(s []any) any { return s }))
	}
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(key, anything(3), 0, 4).Draw(t, "object")
		var b timeline.Blame
		if err := b.Add(version(0, consume.Created, object)); err != nil {
			t.Fatal(err)
		}
		lines, err := b.Lines()
		if err != nil {
			t.Fatalf("%+q: %v", marshal(t, object), err)
		}
		want, err := yaml.JSONToYAML(ascii(marshal(t, object)))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, l := range lines {
			got.WriteString(l.Text + "\n")
			if l.Origin == nil {
				t.Fatalf("%s has no origin", l.Text)
			}
		}
		if diff := gocmp.Diff(string(want), got.String()); diff != "" {
			t.Fatalf("-YAML +blame\n%s", diff)
		}
	})
}

// JSON may escape a character as two surrogates. YAML has no such escapes.
func TestBlameOfEscapedSurrogates(t *testing.T) {
	v := version(0, consume.Created, nil)
	v.After = json.RawMessage(`{"a":"\ud83d\ude80"}`)
	var b timeline.Blame
	if err := b.Add(v); err != nil {
		t.Fatal(err)
	}
	if lines, err := b.Lines(); err != nil || len(lines) != 1 || lines[0].Text != `a: "\U0001F680"` {
		t.Errorf("%+v, %v", lines, err)
	}
}

// ascii escapes characters that are not ASCII. YAML reads a raw U+0085 as the end of a line, and
// rejects control characters.
func ascii(object []byte) []byte {
	var out []byte
	for _, r := range string(object) {
		if r >= 0x7f && r <= 0xffff {
			out = fmt.Appendf(out, "\\u%04x", r)
		} else {
			out = append(out, string(r)...)
		}
	}
	return out
}

// If the origin of a value is uncertain, Blame reports when it was set at the latest, and after
// when.
func TestBlameOfWhatIsNotKnown(t *testing.T) {
	v := func(n int, op consume.Op, before, after string) *timeline.Version {
		out := version(n, op, nil)
		if before != "" {
			out.Before = json.RawMessage(before)
		}
		if after != "" {
			out.After = json.RawMessage(after)
		}
		return out
	}
	skipped := func(v *timeline.Version, n int) *timeline.Version { v.Skipped = n; return v }
	inferred := func(v *timeline.Version) *timeline.Version { v.Inferred = true; return v }
	as := func(v *timeline.Version, uid string) *timeline.Version { v.UID = uid; return v }
	for name, c := range map[string]struct {
		versions []*timeline.Version
		want     string
	}{
		"created": {[]*timeline.Version{v(0, consume.Created, "", `{"a":1}`)}, "a: 1 < set by 100 m0"},
		"read":    {[]*timeline.Version{v(0, consume.Read, "", `{"a":1}`)}, "a: 1 < at or before 100"},
		"the record begins with an update": {
			[]*timeline.Version{v(0, consume.Updated, `{"a":1,"b":1}`, `{"a":1,"b":2}`)},
			"a: 1 < at or before 100 | b: 2 < set by 100 m0",
		},
		"the record begins with an update that lacks before": {
			[]*timeline.Version{v(0, consume.Updated, "", `{"a":1}`)}, "a: 1 < at or before 100",
		},
		"before is not sent": {
			[]*timeline.Version{v(0, consume.Created, "", `{"a":1,"b":1}`), v(1, consume.Updated, "", `{"a":1,"b":2}`)},
			"a: 1 < set by 100 m0 | b: 2 < set by 101 m1",
		},
		"withheld, with before": {
			[]*timeline.Version{
				v(0, consume.Created, "", `{"a":1,"b":1}`),
				skipped(v(3, consume.Updated, `{"a":2,"b":1}`, `{"a":2,"b":2}`), 2),
			},
			"a: 2 < at or before 103, after 0 | b: 2 < set by 103 m3",
		},
		"withheld, without before": {
			[]*timeline.Version{
				v(0, consume.Created, "", `{"a":1,"b":1}`), skipped(v(3, consume.Updated, "", `{"a":2,"b":1}`), 2),
			},
			"a: 2 < at or before 103, after 0 | b: 1 < set by 100 m0",
		},
		"missing, and the count too": {
			[]*timeline.Version{v(0, consume.Created, "", `{"a":1,"b":1}`), v(3, consume.Updated, "", `{"a":2,"b":1}`)},
			"a: 2 < at or before 103, after 0 | b: 1 < set by 100 m0",
		},
		"found by comparing lists": {
			[]*timeline.Version{
				v(0, consume.Created, "", `{"a":1}`), inferred(v(1, consume.Updated, `{"a":1}`, `{"a":2}`)),
			},
			"a: 2 < at or before 101 m1, after 0",
		},
		"a snapshot after a gap": {
			[]*timeline.Version{v(0, consume.Created, "", `{"a":1,"b":1}`), v(5, consume.Read, "", `{"a":1,"b":2}`)},
			"a: 1 < set by 100 m0 | b: 2 < at or before 105, after 0",
		},
		"too large in between": {
			[]*timeline.Version{
				v(0, consume.Created, "", `{"a":1,"b":1}`), v(1, consume.Updated, "", ""),
				v(2, consume.Updated, `{"a":2,"b":1}`, `{"a":2,"b":2}`),
			},
			"a: 2 < at or before 102, after 0 | b: 2 < set by 102 m2",
		},
		"too large at last": {
			[]*timeline.Version{v(0, consume.Created, "", `{"a":1}`), v(1, consume.Updated, "", "")}, "",
		},
		"left and entered": {
			[]*timeline.Version{
				v(0, consume.Created, "", `{"a":1,"b":1}`), v(1, consume.Left, `{"a":1,"b":1}`, ""),
				v(4, consume.Entered, "", `{"a":1,"b":2}`),
			},
			"a: 1 < set by 100 m0 | b: 2 < at or before 104, after 0",
		},
		"deleted": {
			[]*timeline.Version{v(0, consume.Created, "", `{"a":1}`), v(1, consume.Deleted, `{"a":1}`, "")}, "",
		},
		"made anew under the same name": {
			[]*timeline.Version{
				v(0, consume.Created, "", `{"a":1}`), v(1, consume.Deleted, `{"a":1}`, ""),
				as(v(2, consume.Created, "", `{"a":1}`), "2"),
			},
			"a: 1 < set by 102 m2",
		},
		"replaced, and the deletion not sent": {
			[]*timeline.Version{v(0, consume.Created, "", `{"a":1}`), as(v(2, consume.Read, "", `{"a":1}`), "2")},
			"a: 1 < at or before 102",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b timeline.Blame
			for _, v := range c.versions {
				if err := b.Add(v); err != nil {
					t.Fatal(err)
				}
			}
			lines, err := b.Lines()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range lines {
				o := l.Origin
				text := fmt.Sprintf("%s < at or before %s", l.Text, o.Version.ResourceVersion)
				if o.Exact {
					text = fmt.Sprintf("%s < set by %s", l.Text, o.Version.ResourceVersion)
				}
				for _, by := range o.By {
					text += " " + by.Manager
				}
				if !o.Since.IsZero() {
					text += fmt.Sprintf(", after %v", o.Since.Sub(noon).Minutes())
				}
				got = append(got, text)
			}
			if text := strings.Join(got, " | "); text != c.want {
				t.Errorf("%s\nwant %s", text, c.want)
			}
		})
	}
}
