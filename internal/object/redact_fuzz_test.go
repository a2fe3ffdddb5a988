package object_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/object"
)

// rule is a path and what becomes of the values it names.
type rule struct {
	steps []step
	cut   bool
}

var plainName = regexp.MustCompile(`^[^.\[\]*"'\x00-\x20\x7f]+$`)

// join is a path with one more name, as the MAC has it.
func join(path, name string) string {
	if plainName.MatchString(name) {
		return strings.TrimPrefix(path+"."+name, ".")
	}
	var b strings.Builder
	for _, c := range name {
		switch {
		case c == '"' || c == '\\':
			fmt.Fprintf(&b, "\\%c", c)
		case c < ' ':
			fmt.Fprintf(&b, "\\u%04x", c)
		default:
			b.WriteRune(c)
		}
	}
	return path + `["` + b.String() + `"]`
}

// redacted is the tree of a value less what rules cut, and with what they replace replaced by means
// of encoding/json and crypto/hmac alone. ok is false where the value itself is cut.
func redacted(tb testing.TB, raw json.RawMessage, rules []rule, uid, path string) (tree any, ok bool) {
	tb.Helper()
	replace := false
	for _, r := range rules {
		if len(r.steps) == 0 && r.cut {
			return nil, false
		}
		replace = replace || len(r.steps) == 0
	}
	raw = bytes.TrimSpace(raw)
	if replace {
		var text string
		switch raw[0] {
		case 'n':
			return nil, true
		case '"':
			if err := json.Unmarshal(raw, &text); err != nil {
				tb.Fatal(err)
			}
		default:
			text = string(raw)
		}
		return macOf(testKey, uid, path, text), true
	}
	inside := func(s step) (out []rule) {
		for _, r := range rules {
			if r.steps[0].each || !s.each && r.steps[0] == s {
				out = append(out, rule{r.steps[1:], r.cut})
			}
		}
		return out
	}
	switch raw[0] {
	case '{':
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			tb.Fatal(err)
		}
		out := map[string]any{}
		for name, value := range members {
			if v, ok := redacted(tb, value, inside(step{name: name}), uid, join(path, name)); ok {
				out[name] = v
			}
		}
		return out, true
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			tb.Fatal(err)
		}
		out := []any{}
		for _, value := range elements {
			if v, ok := redacted(tb, value, inside(step{each: true}), uid, path+"[*]"); ok {
				out = append(out, v)
			}
		}
		return out, true
	}
	return decode(tb, raw), true
}

// rulesOf are the rules of a Cutter that cuts and replaces paths; what Redact cuts besides among
// them.
func rulesOf(tb testing.TB, cut, replaced []string) []rule {
	var rules []rule
	for _, path := range slices.Concat(cut, object.Copies()) {
		rules = append(rules, rule{steps(tb, path), true})
	}
	for _, path := range replaced {
		rules = append(rules, rule{steps(tb, path), false})
	}
	return rules
}

func FuzzRedact(f *testing.F) {
	for _, name := range samples {
		f.Add(sample(f, name), lastApplied, "data[*]\nspec.containers[*].env[*].value\nspec[*]\nmetadata.labels[*]")
	}
	f.Add([]byte(`{"a":[{"b":1,"c":2},{"b":"3"},[],{"b":null}],"d":{"e":{"f":{}}},"metadata":{"uid":"u"}}`),
		"a[*].c\nd.e", "a[*].b\nd.e.f")
	f.Add([]byte(`{"a":{"x":1,"y":"2","z":[1]},"metadata":{"uid":"u","managedFields":1}}`), "a.x\na.z[*]", "a[*]\na.y")
	f.Add([]byte(` { "\u0061" : [ "\u0041" , [ "\ud800" ] ] , "b" : -0.5e+3 } `), "b", "a[*]\na[*][*]\n[\"a\"]")
	f.Add([]byte(`{"a":"1","b":2,"a":{"b":3},"metadata":{"uid":"1"},"metadata":{"uid":"2"}}`), "b", "a.b\na")
	mac := newMAC(f, testKey, false)
	f.Fuzz(func(t *testing.T, raw []byte, cut, replaced string) {
		c, err := object.NewCutter(strings.Split(cut, "\n"))
		if err != nil {
			cut, c = "x", cutter(t, "x")
		}
		if strings.Count(replaced, "[*]") > 30 || strings.Count(cut, "[*]") > 30 {
			return // the oracle's way with them takes for ever
		}
		c, err = c.Redact(strings.Split(replaced, "\n"), mac)
		if err != nil {
			return
		}
		s := object.NewScanner(c)
		out, m, err := s.Scan([]byte("head"), raw, "", "")
		_, _, plain := object.NewScanner(nil).Scan(nil, raw, "", "")
		if fmt.Sprint(err) != fmt.Sprint(plain) {
			t.Fatalf("%q: %v, without redaction %v", raw, err, plain)
		}
		if err != nil {
			return
		}
		if string(out[:4]) != "head" {
			t.Fatalf("dst lost: %q", out)
		}
		uid := string(m.UID)
		want, _ := redacted(t, raw, rulesOf(t, strings.Split(cut, "\n"), strings.Split(replaced, "\n")), uid, "")
		if diff := cmp.Diff(want, decode(t, out[4:])); diff != "" {
			t.Fatalf("%q by %q, %q is %q: %s", raw, cut, replaced, out, diff)
		}
		again, _, err := s.Scan(nil, raw, "", "")
		if err != nil || !bytes.Equal(again, out[4:]) {
			t.Fatalf("%q the second time is %q, %v", raw, again, err)
		}
	})
}

// spell writes text as a JSON string in one of the ways in which JSON may.
func spell(t *rapid.T, text string) string {
	way := rapid.IntRange(0, 3).Draw(t, "way")
	var b strings.Builder
	b.WriteByte('"')
	for i, c := range text {
		if way == 1 || way == 2 && i%3 == 0 || c < ' ' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[i%2], c)
		} else {
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// planted draws a value with needles where path leads, and other values elsewhere.
type planted struct {
	*rapid.T
	needles []string
	names   []string
}

func (p *planted) space() string {
	return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(p.T, "space")
}

func (p *planted) needle() string {
	n := fmt.Sprintf("needle-%04d-%s", len(p.needles), rapid.StringMatching(`[a-z"/\\<]{0,4}`).Draw(p.T, "end"))
	p.needles = append(p.needles, n)
	switch rapid.IntRange(0, 3).Draw(p.T, "kind") {
	case 0:
		return "[1,{" + spell(p.T, "in") + ":" + spell(p.T, n) + "}]"
	case 1:
		p.needles[len(p.needles)-1] = fmt.Sprintf("77%07d77", len(p.needles))
		return p.needles[len(p.needles)-1]
	}
	return spell(p.T, n)
}

func (p *planted) value(path []step) string {
	if len(path) == 0 {
		return p.needle()
	}
	s, rest := path[0], path[1:]
	n := rapid.IntRange(1, 3).Draw(p.T, "elements")
	var parts []string
	if s.each && rapid.Bool().Draw(p.T, "array") {
		for range n {
			parts = append(parts, p.space()+p.value(rest)+p.space())
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	for i := range n {
		name, value := s.name, ""
		switch {
		case s.each:
			name, value = rapid.SampledFrom(p.names).Draw(p.T, "name"), p.value(rest)
		case i > 0 && rapid.Bool().Draw(p.T, "beside"): // else once more of the same name
			name, value = "beside", "true"
		default:
			value = p.value(rest)
		}
		parts = append(parts, p.space()+spell(p.T, name)+p.space()+":"+p.space()+value)
	}
	return "{" + strings.Join(rapid.Permutation(parts).Draw(p.T, "order"), ",") + "}"
}

// texts are all strings, names and numbers of a tree.
func texts(v any) []string {
	switch v := v.(type) {
	case map[string]any:
		var all []string
		for name, value := range v {
			all = append(append(all, name), texts(value)...)
		}
		return all
	case []any:
		var all []string
		for _, value := range v {
			all = append(all, texts(value)...)
		}
		return all
	}
	return []string{fmt.Sprint(v)}
}

func TestPlantedValuesAreGone(t *testing.T) {
	names := []string{"a", "b", "tls.crt", `q"`, "größe", "", "data"}
	key := newMAC(t, testKey, false)
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			if rapid.Bool().Draw(t, "each") {
				return step{each: true}
			}
			return step{name: rapid.SampledFrom(names).Draw(t, "name")}
		}), 0, 4).Draw(t, "path")
		path = append([]step{{name: "root"}}, path...)
		text := ""
		for _, s := range path {
			if s.each {
				text += "[*]"
			} else {
				text = join(text, s.name)
			}
		}
		p := &planted{T: t, names: names}
		doc := p.value(path)
		meta := `"metadata":{"uid":"u","managedFields":[{"fieldsV1":{"f:x":{}}}]},`
		doc = "{" + meta + doc[1:]
		mac := rapid.SampledFrom([]*object.MAC{nil, key}).Draw(t, "mac")
		strip := rapid.SampledFrom([][]string{nil, {"beside"}, {"root.a", "root[*].b"}}).Draw(t, "strip")
		c, err := object.NewCutter(strip)
		if err != nil {
			t.Fatal(err)
		}
		c, err = c.Redact([]string{text}, mac)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := object.NewScanner(c).Scan(nil, []byte(doc), "", "")
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		var tree, whole any
		if err := json.Unmarshal(out, &tree); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if err := json.Unmarshal([]byte(doc), &whole); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		all := strings.Join(append(texts(tree), string(out)), "\n")
		for _, needle := range p.needles {
			if strings.Contains(all, needle) {
				t.Fatalf("%s: %q of %s is in %s", text, needle, doc, out)
			}
		}
		if found := strings.Join(texts(whole), "\n"); !slices.ContainsFunc(p.needles,
			func(n string) bool { return strings.Contains(found, n) }) &&
			len(p.needles) > 0 && !strings.Contains(doc, "77") {
			t.Fatalf("no needle is found in %s", doc)
		}
	})
}
