package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Random documents, as trees of nil, bool, json.Number, string, []any and map[string]any.

var (
	scalars = rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.SampledFrom([]string{"0", "1", "-1", "10", "1.0", "1e0", "1E+2", "12345678901234567890"}),
			func(s string) any { return json.Number(s) }),
		rapid.Map(texts, func(s string) any { return s }),
	)
	texts = rapid.OneOf(
		rapid.SampledFrom(
			[]string{"", "a", "b", "ab", "/", "~", "~1", "~01", "-", "0", "\"", "\\", "\n", "ä", "🎈", "}", "],"}),
		rapid.String(),
	)
)

func trees(depth int) *rapid.Generator[any] {
	if depth == 0 {
		return scalars
	}
	return rapid.OneOf(
		scalars,
		rapid.Map(rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return trees(depth - 1) }), 0, 5),
			func(v []any) any { return v }),
		rapid.Map(objects(depth), func(v map[string]any) any { return v }),
	)
}

func objects(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(texts, rapid.Deferred(func() *rapid.Generator[any] { return trees(depth - 1) }), 0, 6)
}

// mutate is a copy of v with some changes.
func mutate(t *rapid.T, v any, depth int) any {
	if rapid.IntRange(0, 9).Draw(t, "replace") == 0 {
		return trees(depth).Draw(t, "value")
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch rapid.IntRange(0, 9).Draw(t, "member") {
			case 0:
			case 1, 2, 3:
				out[k] = mutate(t, v[k], max(depth-1, 0))
			default:
				out[k] = v[k]
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "add") == 0 {
			out[texts.Draw(t, "key")] = trees(max(depth-1, 0)).Draw(t, "value")
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			switch rapid.IntRange(0, 9).Draw(t, "element") {
			case 0:
			case 1, 2:
				out = append(out, mutate(t, e, max(depth-1, 0)))
			case 3:
				out = append(out, scalars.Draw(t, "inserted"), e)
			default:
				out = append(out, e)
			}
		}
		return out
	}
	return v
}

// writer writes trees as JSON in one of many ways.
type writer struct {
	t                                 *rapid.T
	shuffle, space, escape, duplicate bool
}

func writers(t *rapid.T) *writer {
	style := rapid.IntRange(0, 31).Draw(t, "style")
	if style < 16 {
		return &writer{t: t}
	}
	return &writer{t: t, shuffle: style&1 != 0, space: style&2 != 0, escape: style&4 != 0, duplicate: style&8 != 0}
}

func (w *writer) sometimes(on bool, label string) bool {
	return on && rapid.IntRange(0, 3).Draw(w.t, label) == 0
}

func (w *writer) append(b []byte, v any) []byte {
	b = w.appendSpace(b)
	switch v := v.(type) {
	case nil:
		b = append(b, "null"...)
	case bool:
		b = fmt.Append(b, v)
	case json.Number:
		b = append(b, v...)
	case string:
		b = w.appendString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = w.append(b, e)
		}
		b = append(w.appendSpace(b), ']')
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if w.shuffle {
			keys = rapid.Permutation(keys).Draw(w.t, "order")
		}
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			if w.sometimes(w.duplicate, "duplicate") {
				b = w.appendMember(b, k, scalars.Draw(w.t, "hidden"))
				b = append(b, ',')
			}
			b = w.appendMember(b, k, v[k])
		}
		b = append(w.appendSpace(b), '}')
	default:
		w.t.Fatalf("%T", v)
	}
	return w.appendSpace(b)
}

func (w *writer) appendMember(b []byte, k string, v any) []byte {
	b = w.appendString(w.appendSpace(b), k)
	b = append(w.appendSpace(b), ':')
	return w.append(b, v)
}

func (w *writer) appendSpace(b []byte) []byte {
	if w.sometimes(w.space, "space") {
		b = append(b, rapid.SampledFrom([]string{" ", "\n", "\t\r "}).Draw(w.t, "which")...)
	}
	return b
}

func (w *writer) appendString(b []byte, s string) []byte {
	if !w.sometimes(w.escape, "escape") {
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			w.t.Fatal(err)
		}
		return append(b, bytes.TrimSpace(buf.Bytes())...)
	}
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r > 0xffff:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r == '/':
			b = append(b, `\/`...)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}

// An object's history: from each version to the next, and from the first to each, patches lead
// there.
func TestAppendProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 4).Draw(t, "depth")
		object := func(v any) map[string]any {
			m, ok := v.(map[string]any)
			if !ok {
				m = map[string]any{"v": v}
			}
			return m
		}
		last := objects(depth).Draw(t, "object")
		w := writers(t)
		first := w.append(nil, last)
		before := first
		for range 6 {
			next := object(mutate(t, last, depth))
			if rapid.IntRange(0, 9).Draw(t, "unrelated") == 0 {
				next = objects(depth).Draw(t, "object")
			}
			w = writers(t)
			after := w.append(nil, next)
			checkApplies(t, mustPatch(t, before, after), before, after)
			checkApplies(t, mustPatch(t, first, after), first, after)
			again := w.append(nil, last)
			if got := mustPatch(t, before, again); string(got) != "[]" {
				t.Fatalf("patch of equal documents: %s\n%s\n%s", got, before, again)
			}
			last, before = next, after
		}
	})
}

func FuzzAppend(f *testing.F) {
	for _, p := range pairs(f) {
		f.Add(p[0], p[1])
	}
	f.Add([]byte(`{"a":1,"a":{"b":[]}}`), []byte(`{"\u0061":{"b":[1, {}]}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		patch, err := appendPatch(before, after)
		if !plain(before) || !plain(after) {
			return // no panic, no more is promised
		}
		if err != nil {
			t.Fatal(err)
		}
		checkApplies(t, patch, before, after)
		checkPlain(t, before, after)
	})
}

// plain reports whether doc is valid input for Append: one JSON object in UTF-8. TestAppend covers
// halves of surrogate pairs, which encoding/json does not preserve.
func plain(doc []byte) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(doc, &m) == nil && m != nil && utf8.Valid(doc) &&
		!strings.Contains(strings.ToLower(string(doc)), `\ud`)
}
