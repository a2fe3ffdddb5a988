package object_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

func TestForm(t *testing.T) {
	same := [][]string{
		{
			`{"a":1,"b":{"c":[1,2],"d":"x"}}`, `{"b":{"d":"x","c":[1,2]},"a":1}`,
			" {\n\"a\" : 1, \"b\": {\"c\":[ 1 ,2],\"d\":\"\\u0078\"} } ",
		},
		{`{"<é😀>":"a&b"}`, `{"\u003c\u00e9\ud83d\ude00\u003e":"a\u0026b"}`},
		{`{}`, ` { } `},
		{`[]`, `[ ]`},
	}
	for _, docs := range same {
		for _, doc := range docs[1:] {
			if object.Form([]byte(doc)) != object.Form([]byte(docs[0])) {
				t.Errorf("%s has another form than %s", doc, docs[0])
			}
		}
	}
	// Each of these differs from all others.
	distinct := []string{
		`{}`, `[]`, `""`, `null`, `0`, `"0"`, `"null"`, `[[]]`, `[{}]`, `{"":{}}`, `{"":[]}`, `{"a":null}`, `{"a":""}`,
		`{"a":"b"}`, `{"b":"a"}`,
		`{"a":"b","b":"a"}`, `{"a":"a","b":"b"}`, `{"a":{"b":1},"c":2}`, `{"a":{"b":1,"c":2}}`, `{"a":{"c":2},"b":1}`,
		`["a","b"]`, `["b","a"]`,
		`["ab"]`, `[["a"],"b"]`, `["a",["b"]]`, `[["a","b"]]`, `{"a":1}`, `{"a":1.0}`, `{"a":1,"b":1}`, `{"a":[1,1]}`,
		`{"a":[1]}`, `[1,1]`, `[null]`,
	}
	forms := map[uint64]string{}
	for _, doc := range distinct {
		form := object.Form([]byte(doc))
		if other, ok := forms[form]; ok {
			t.Errorf("%s and %s have one form", doc, other)
		}
		forms[form] = doc
	}
}

// Objects in the form of an API server, with their members in any order, have one form. With any
// value changed, or any member removed, they have another one.
func TestFormOfObjects(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range samples {
		raw := sample(t, name)
		form := object.Form(raw)
		var v any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&v); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if object.Form(shuffled(rng, nil, v)) != form {
				t.Fatalf("%s has another form with its members in another order", name)
			}
		}
		seen := map[uint64]bool{form: true}
		changes := 0
		eachChange(v, func() {
			changes++
			changed := object.Form(shuffled(rng, nil, v))
			if seen[changed] {
				t.Errorf("%s: two contents have one form", name)
			}
			seen[changed] = true
		})
		if changes < 20 {
			t.Errorf("%s: %d changes", name, changes)
		}
	}
}

// eachChange calls do for each change of v: a member that is removed, or a text that is longer.
func eachChange(v any, do func()) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			was := v[name]
			delete(v, name)
			do()
			v[name] = was
			if text, ok := was.(string); ok {
				v[name] = text + "x"
				do()
				v[name] = was
			}
			eachChange(was, do)
		}
	case []any:
		for _, e := range v {
			eachChange(e, do)
		}
	}
}

// shuffled appends the JSON of v with the members of objects in any order.
func shuffled(rng *rand.Rand, dst []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Collect(maps.Keys(v))
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		dst = append(dst, '{')
		for n, name := range names {
			if n > 0 {
				dst = append(dst, ',')
			}
			key, _ := json.Marshal(name)
			dst = shuffled(rng, append(append(dst, key...), ':'), v[name])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for n, e := range v {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = shuffled(rng, dst, e)
		}
		return append(dst, ']')
	}
	text, _ := json.Marshal(v)
	return append(dst, text...)
}

// Form reads any document, also a damaged one, to an end.
func FuzzForm(f *testing.F) {
	for _, doc := range []string{
		`{"a":[1,"\ud800",{}]}`, `{"a"`, `[1,`, `{"a":1}}`, `"\u12"`, `{"a":tru}`, ``, `[[[[`,
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		form := object.Form([]byte(doc))
		if !json.Valid([]byte(doc)) || strings.Contains(doc, "\\u") {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(doc)); err != nil {
			t.Fatal(err)
		}
		if object.Form(compact.Bytes()) != form {
			t.Errorf("%q has another form than %q", compact.String(), doc)
		}
	})
}
