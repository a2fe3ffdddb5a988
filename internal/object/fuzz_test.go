package object_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// step is a step of a path, parsed independently of the package.
type step struct {
	name string
	each bool
}

var stepPattern = regexp.MustCompile(`^(?:(\[\*\])|\[("(?:[^"\\]|\\.)*")\]|\.?([^.\[\]]+))`)

// steps parses a path that NewCutter has accepted.
func steps(tb testing.TB, path string) []step {
	tb.Helper()
	var out []step
	for rest := path; rest != ""; {
		m := stepPattern.FindStringSubmatch(rest)
		if m == nil {
			tb.Fatalf("path %q: accepted, but not a path from %q on", path, rest)
		}
		s := step{each: m[1] != "", name: m[3]}
		if m[2] != "" {
			if err := json.Unmarshal([]byte(m[2]), &s.name); err != nil {
				tb.Fatalf("path %q: accepted, but %q is not JSON: %v", path, m[2], err)
			}
		}
		out, rest = append(out, s), rest[len(m[0]):]
	}
	return out
}

// without returns the tree v without the values that the path names.
func without(v any, path []step) any {
	switch v := v.(type) {
	case map[string]any:
		if path[0].each {
			return v
		}
		child, ok := v[path[0].name]
		if !ok {
			return v
		}
		if len(path) == 1 {
			delete(v, path[0].name)
		} else {
			v[path[0].name] = without(child, path[1:])
		}
	case []any:
		if !path[0].each {
			return v
		}
		if len(path) == 1 {
			return []any{}
		}
		for i := range v {
			v[i] = without(v[i], path[1:])
		}
	}
	return v
}

func decode(tb testing.TB, raw []byte) (v any) {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("decode %q: %v", raw, err)
	}
	return v
}

// repeats reports whether an object in valid JSON has two members of one name.
func repeats(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	var names []map[string]bool // per open container, nil for an array
	var wantName []bool
	value := func() {
		if n := len(wantName); n > 0 {
			wantName[n-1] = names[n-1] != nil
		}
	}
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		n := len(names)
		switch token {
		case json.Delim('{'), json.Delim('['):
			var seen map[string]bool
			if token == json.Delim('{') {
				seen = map[string]bool{}
			}
			names, wantName = append(names, seen), append(wantName, seen != nil)
		case json.Delim('}'), json.Delim(']'):
			names, wantName = names[:n-1], wantName[:n-1]
			value()
		default:
			if n > 0 && wantName[n-1] {
				name := token.(string)
				if names[n-1][name] {
					return true
				}
				names[n-1][name], wantName[n-1] = true, false
				continue
			}
			value()
		}
	}
}

// scanned is object.Scanned in a comparable form.
type scanned struct {
	APIVersion, Kind, Namespace, Name, UID, ResourceVersion string

	ManagedAt int64
	Managers  []managed
}

type managed struct {
	Manager, Operation, Subresource, Time string

	At int64
}

func textual(m *object.Scanned) scanned {
	s := scanned{
		string(m.APIVersion), string(m.Kind), string(m.Namespace), string(m.Name), string(m.UID),
		string(m.ResourceVersion), m.Managed.At(), nil,
	}
	for _, f := range m.Managers {
		s.Managers = append(s.Managers, managed{
			string(f.Manager), string(f.Operation), string(f.Subresource), string(f.Time), f.At,
		})
	}
	return s
}

// read reads the metadata of a tree. ok is false if a member has a wrong type.
func read(tree map[string]any) (s scanned, ok bool) {
	ok = true
	text := func(m map[string]any, name string, null bool) string {
		v, has := m[name]
		t, is := v.(string)
		if has && !is && (v != nil || !null) {
			ok = false
		}
		return t
	}
	s.Kind, s.APIVersion = text(tree, "kind", false), text(tree, "apiVersion", false)
	meta, is := tree["metadata"].(map[string]any)
	if !is && tree["metadata"] != nil {
		ok = false
	}
	s.Namespace, s.Name = text(meta, "namespace", true), text(meta, "name", true)
	s.UID, s.ResourceVersion = text(meta, "uid", true), text(meta, "resourceVersion", true)
	fields, _ := meta["managedFields"].([]any)
	for _, f := range fields {
		f, is := f.(map[string]any)
		if !is {
			continue
		}
		courtesy := func(name string) string { t, _ := f[name].(string); return t }
		m := managed{courtesy("manager"), courtesy("operation"), courtesy("subresource"), courtesy("time"), 0}
		var at time.Time
		if at.UnmarshalText([]byte(m.Time)) == nil {
			m.At = at.Unix()
		}
		s.ManagedAt = max(s.ManagedAt, m.At)
		s.Managers = append(s.Managers, m)
	}
	return s, ok
}

func FuzzScan(f *testing.F) {
	usual := "metadata.managedFields\n" + lastApplied
	for _, name := range samples {
		f.Add(sample(f, name), usual)
	}
	for _, tc := range scanTable {
		f.Add([]byte(tc.in), strings.Join(tc.cut, "\n"))
	}
	f.Add([]byte(`{"a":[{"b":1,"c":2},{"b":3},[],{"b":null}],"d":{"e":{"f":{}}}}`), "a[*].b\nd.e.f")
	f.Add([]byte(`{"a":[1,2,3],"b":[[1],[2,[]]]}`), "a[*]\nb[*][*]")
	f.Add([]byte(` { "a" : 1 , "b" : -0.5e+3 , "c" : "\u00e9\ud83d\ude00\ud800" } `), "b")
	f.Add([]byte(`{"metadata":{"managedFields":[{"manager":"a","time":"2024-02-29T23:59:59Z"},1,{"time":"x"}]}}`),
		"metadata.managedFields[*].time")
	reused := map[string]*object.Scanner{}
	f.Fuzz(func(t *testing.T, raw []byte, list string) {
		paths := strings.Split(list, "\n")
		c, err := object.NewCutter(paths)
		if err != nil {
			c, paths = nil, nil
		}
		s := reused[list] // remains of the last object in the Scanner must not show
		if s == nil {
			s = object.NewScanner(c)
			if len(reused) < 1000 {
				reused[list] = s
			}
		}
		before := slices.Clone(raw)
		out, m, err := s.Scan([]byte("head"), raw, "Kind", "group/v1")
		if !bytes.Equal(before, raw) {
			t.Fatal("raw has been changed")
		}
		if !bytes.HasPrefix(out, []byte("head")) {
			t.Fatalf("dst lost: %q", out)
		}
		out = out[4:]
		trimmed := bytes.Trim(raw, " \t\r\n")
		var syntax *jsonscan.SyntaxError
		if !json.Valid(raw) {
			if err == nil {
				t.Fatalf("accepted invalid JSON %q", raw)
			}
			var want *json.SyntaxError
			if errors.As(err, &syntax) && errors.As(json.Unmarshal(raw, new(any)), &want) &&
				!strings.Contains(want.Error(), "exceeded max depth") && want.Offset != int64(syntax.Offset)+1 {
				t.Fatalf("%q: %v, want offset %d (%v)", raw, err, want.Offset-1, want)
			}
			return
		}
		if errors.As(err, &syntax) || errors.Is(err, jsonscan.ErrTruncated) {
			t.Fatalf("%q is valid: %v", raw, err)
		}
		tree, is := decode(t, raw).(map[string]any)
		if !is {
			if err == nil {
				t.Fatalf("accepted %q, which is no object", raw)
			}
			return
		}
		want, ok := read(tree)
		if err != nil {
			if ok && !repeats(raw) { // all members with the same name must have the right type
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if !ok {
			t.Fatalf("%q: accepted a wrong type", raw)
		}
		if len(out) > 0 && !json.Valid(out) {
			t.Fatalf("%q cut by %q: not valid: %q", raw, paths, out)
		}
		if _, has := tree["kind"]; !has {
			tree["kind"], want.Kind = "Kind", "Kind"
		}
		if _, has := tree["apiVersion"]; !has {
			tree["apiVersion"], want.APIVersion = "group/v1", "group/v1"
		}
		if diff := cmp.Diff(want, textual(m)); diff != "" {
			t.Fatalf("%q: metadata: %s", raw, diff)
		}
		for _, path := range paths {
			without(tree, steps(t, path))
		}
		if diff := cmp.Diff(any(tree), decode(t, out)); diff != "" {
			t.Fatalf("%q cut by %q is %q: %s", raw, paths, out, diff)
		}
		again, _, err := s.Scan(nil, out, "Kind", "group/v1")
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q again is %q, %v", out, again, err)
		}
		short := trimmed[:len(trimmed)*7/8]
		if _, _, err := s.Scan(nil, short, "", ""); !errors.Is(err, jsonscan.ErrTruncated) {
			t.Fatalf("%q: %v, want ErrTruncated", short, err)
		}
	})
}

func FuzzCutterPath(f *testing.F) {
	for _, path := range []string{
		"metadata.managedFields", lastApplied, `spec.x["a.b"].c`, "a[*].b", "a[*][*]", `["a"]["\u0061\"]"]`, "a.", ".a",
		"a..b", "a[", "a[*", "a[0]", `a["`, `a["x`, `a["x"`, `a["\q"]`, "a.*", "[*].a", "", "a b", "metadata", "kind",
		"metadata.name", `metadata["\u006eame"]`, "a]b", "größe", "a\xff", `a[""]`,
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		c, err := object.NewCutter([]string{path})
		if err != nil {
			var bad *object.PathError
			if !errors.As(err, &bad) || bad.Path != path || bad.Column < 1 || bad.Column > len(path)+1 {
				t.Fatalf("%q: %#v", path, err)
			}
			return
		}
		// The cutter removes the value that the path names, and nothing beside it, from an object
		// made to have it.
		parts := steps(t, path)
		var tree, rest any = "leaf", nil
		for i, s := range slices.Backward(parts) {
			last := i == len(parts)-1
			switch {
			case s.each && last:
				tree, rest = []any{tree}, []any{}
			case s.each:
				tree, rest = []any{tree, "other"}, []any{rest, "other"}
			case last:
				tree, rest = map[string]any{s.name: tree, s.name + "'": 1.0}, map[string]any{s.name + "'": 1.0}
			default:
				tree = map[string]any{s.name: tree, s.name + "'": 1.0}
				rest = map[string]any{s.name: rest, s.name + "'": 1.0}
			}
		}
		raw, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := object.NewScanner(c).Scan(nil, raw, "", "")
		if err != nil { // the path goes through a member that has to be a string
			var syntax *jsonscan.SyntaxError
			if errors.As(err, &syntax) || errors.Is(err, jsonscan.ErrTruncated) {
				t.Fatalf("%q: %q: %v", path, raw, err)
			}
			return
		}
		var got any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q: %q: %v", path, out, err)
		}
		if diff := cmp.Diff(rest, got); diff != "" {
			t.Fatalf("%q of %q leaves %q: %s", path, raw, out, diff)
		}
	})
}
