package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/object/patch"
)

// plainPatch defines the patch in the plainest way: it decodes both values again on each level, and
// writes as it goes. Append must have the same output, although its work is linear.
func plainPatch(before, after []byte) []byte {
	p := plainDiffer{out: []byte{'['}}
	p.compare("", bytes.TrimSpace(before), bytes.TrimSpace(after), 0)
	return append(p.out, ']')
}

type plainDiffer struct{ out []byte }

func (p *plainDiffer) emit(op, path string, value []byte) {
	if p.out[len(p.out)-1] == '}' {
		p.out = append(p.out, ',')
	}
	p.out = fmt.Appendf(p.out, `{"op":"%s","path":"%s"`, op, path)
	if value != nil {
		p.out = fmt.Appendf(p.out, `,"value":%s`, value)
	}
	p.out = append(p.out, '}')
}

func (p *plainDiffer) compare(path string, va, vb []byte, depth int) {
	if bytes.Equal(va, vb) {
		return
	}
	if va[0] != vb[0] || va[0] != '{' && va[0] != '[' || depth == patch.MaxDepth {
		if !sameText(va, vb) {
			p.emit("replace", path, vb)
		}
		return
	}
	from := len(p.out)
	if va[0] == '{' {
		p.compareObjects(path, va, vb, depth)
	} else {
		p.compareArrays(path, va, vb, depth)
	}
	if len(p.out)-from > len(vb)+patch.Slack {
		p.out = p.out[:from]
		p.emit("replace", path, vb)
	}
}

func (p *plainDiffer) compareObjects(path string, va, vb []byte, depth int) {
	as, bs := plainMembers(va), plainMembers(vb)
	find := func(ms []plainMember, key string) int {
		return slices.IndexFunc(ms, func(m plainMember) bool { return m.key == key })
	}
	for _, m := range as {
		if n := find(bs, m.key); n < 0 {
			p.emit("remove", path+pointerTo(m.key), nil)
		} else {
			p.compare(path+pointerTo(m.key), m.value, bs[n].value, depth+1)
		}
	}
	for _, m := range bs {
		if find(as, m.key) < 0 {
			p.emit("add", path+pointerTo(m.key), m.value)
		}
	}
}

func (p *plainDiffer) compareArrays(path string, va, vb []byte, depth int) {
	as, bs := plainElements(va), plainElements(vb)
	base, tail := 0, 0
	for len(as) > 0 && len(bs) > 0 && bytes.Equal(as[0], bs[0]) {
		as = as[1:]
		bs = bs[1:]
		base++
	}
	for len(as) > 0 && len(bs) > 0 && bytes.Equal(as[len(as)-1], bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	pairs := min(len(as), len(bs))
	if len(as) != len(bs) {
		head := 0
		for head < pairs && plainAlike(as[head], bs[head]) {
			head++
		}
		for tail < pairs-head && plainAlike(as[len(as)-1-tail], bs[len(bs)-1-tail]) {
			tail++
		}
	}
	at := func(k int) string { return fmt.Sprintf("%s/%d", path, base+k) }
	for k := range pairs - tail {
		p.compare(at(k), as[k], bs[k], depth+1)
	}
	for k := len(as) - tail - 1; k >= pairs-tail; k-- {
		p.emit("remove", at(k), nil)
	}
	for k := pairs - tail; k < len(bs)-tail; k++ {
		p.emit("add", at(k), bs[k])
	}
	for k := len(bs) - tail; k < len(bs); k++ {
		p.compare(at(k), as[k+len(as)-len(bs)], bs[k], depth+1)
	}
}

// plainAlike reports whether both begin with the same first member, without white space.
func plainAlike(a, b []byte) bool {
	if !bytes.HasPrefix(a, []byte(`{"`)) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(a))
	var value json.RawMessage
	_, _ = d.Token()
	_, _ = d.Token()
	colon := int(d.InputOffset())
	_ = d.Decode(&value)
	end := int(d.InputOffset())
	return a[colon] == ':' && end-colon == len(":")+len(value) && len(b) > end && bytes.Equal(a[:end], b[:end]) &&
		(b[end] == ',' || b[end] == '}')
}

type plainMember struct {
	key   string
	value []byte
}

// plainMembers returns the members of an object, without those that a later one overrides.
func plainMembers(object []byte) (ms []plainMember) {
	d := json.NewDecoder(bytes.NewReader(object))
	_, _ = d.Token()
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		name, _ := key.(string)
		ms = slices.DeleteFunc(ms, func(m plainMember) bool { return m.key == name })
		ms = append(ms, plainMember{name, value})
	}
	return ms
}

func plainElements(array []byte) (vs [][]byte) {
	d := json.NewDecoder(bytes.NewReader(array))
	_, _ = d.Token()
	for d.More() {
		var value json.RawMessage
		_ = d.Decode(&value)
		vs = append(vs, value)
	}
	return vs
}

// sameText reports whether two different strings differ only in their escapes.
func sameText(va, vb []byte) bool {
	var a, b string
	return json.Unmarshal(va, &a) == nil && json.Unmarshal(vb, &b) == nil && a == b &&
		bytes.Contains(append(va[:len(va):len(va)], vb...), []byte(`\`))
}

// pointerTo returns one segment of a path, as in the patch.
func pointerTo(key string) string {
	var out []byte
	for _, c := range []byte(strings.NewReplacer("~", "~0", "/", "~1").Replace(key)) {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ':
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = append(out, c)
		}
	}
	return "/" + string(out)
}

// checkPlain compares the patch, by lockstep and by index alone, with plainPatch.
func checkPlain(t fataler, before, after []byte) {
	want := plainPatch(before, after)
	for name, patch := range map[string]func(dst, before, after []byte) ([]byte, error){
		"lockstep": patch.Append, "index": patch.AppendByIndex,
	} {
		got, err := patch(nil, before, after)
		if err != nil || !bytes.Equal(want, got) {
			t.Fatalf("%s: %v\nbefore %s\nafter  %s\nwant   %s\ngot    %s", name, err, before, after, want, got)
		}
	}
}

func TestLinearPatchIsThePlainOne(t *testing.T) {
	all := pairs(t)
	for _, p := range all {
		for _, other := range all {
			checkPlain(t, p[0], other[1])
			checkPlain(t, p[1], other[0])
		}
	}
	for name, shape := range deepShapes() {
		for _, depth := range []int{1, 2, 5, 98, 99, 100, 101} {
			if name == "repeated deep key" && depth > 5 {
				continue // plainPatch would take long
			}
			before, after := deepPair(shape, depth, 100)
			checkPlain(t, before, after)
			checkPlain(t, after, before)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 5).Draw(t, "depth")
		first := objects(depth).Draw(t, "object")
		second, ok := mutate(t, first, depth).(map[string]any)
		if !ok {
			second = objects(depth).Draw(t, "another")
		}
		before, after := writers(t).append(nil, first), writers(t).append(nil, second)
		checkPlain(t, before, after)
		// The same inside a level on which the documents diverge.
		shapes := deepShapes()
		shape := shapes[rapid.SampledFrom(slices.Sorted(maps.Keys(shapes))).Draw(t, "shape")]
		for level := range rapid.IntRange(1, 3).Draw(t, "levels") {
			before, after = []byte(shape(string(before), level, false)), []byte(shape(string(after), level, true))
		}
		checkPlain(t, before, after)
	})
}
