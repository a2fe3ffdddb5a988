package jsonscan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// walk lists what Members goes through, entering every object and array.
func walk(m *jsonscan.Members, path string, out *[]string) {
	switch {
	case m.Enter('{'):
		for name, ok := m.Next(); ok; name, ok = m.Next() {
			walk(m, path+"/"+string(name), out)
		}
	case m.Enter('['):
		for i := 0; m.NextElement(); i++ {
			walk(m, fmt.Sprint(path, "/", i), out)
		}
	default:
		if v := m.Value(); v != nil {
			*out = append(*out, path+"="+string(v))
		}
	}
}

func TestMembers(t *testing.T) {
	for doc, want := range map[string]string{
		` { "a" : 1 , "b":{ }, "c" :[ ] , "d":[1,{"e":null},[true]]}` + "\n": "/a=1 /d/0=1 /d/1/e=null /d/2/0=true",
		`{"\u0061\n":"\"x"}`: "/a\n=\"\\\"x\"",
		`7`:                  "=7",
		`{}`:                 "",
		``:                   "JSON ends before the value does",
		`{"a"`:               "JSON ends before the value does",
		`{"a":`:              "JSON ends before the value does",
		`{"a":1`:             "/a=1 JSON ends before the value does",
		`{"a":1,}`:           `/a=1 JSON syntax at byte 7: unexpected '}'`,
		`{,}`:                `JSON syntax at byte 1: unexpected ','`,
		`{"a" 1}`:            `JSON syntax at byte 5: unexpected '1'`,
		`{"a":1 "b":2}`:      `/a=1 JSON syntax at byte 7: unexpected '"'`,
		`[1 2]`:              `/0=1 JSON syntax at byte 3: unexpected '2'`,
		`[1,]`:               `/0=1 JSON syntax at byte 3: unexpected ']'`,
		`[1}`:                `/0=1 JSON syntax at byte 2: unexpected '}'`,
		`{"a":[1}`:           `/a/0=1 JSON syntax at byte 7: unexpected '}'`,
		`{a:1}`:              `JSON syntax at byte 1: unexpected 'a'`,
		`{}{}`:               `JSON syntax at byte 2: unexpected '{'`,
		`{"a":tru}`:          `JSON syntax at byte 8: unexpected '}'`,
	} {
		m := jsonscan.NewMembers([]byte(doc))
		var got []string
		walk(m, "", &got)
		if err := m.End(); err != nil {
			got = append(got, err.Error())
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: -want +got\n%s", doc, diff)
		}
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{
		`""`:                     "",
		`"a"`:                    "a",
		`"\u00e9\"\ud83d\ude00"`: "é\"😀",
		"\"\xff\"":               "\uFFFD",
	} {
		if got, ok := jsonscan.Text([]byte(value)); got != want || !ok {
			t.Errorf("%s: %q, %v, want %q", value, got, ok, want)
		}
	}
	for _, value := range []string{``, `"`, `1`, `null`, `{}`} {
		if got, ok := jsonscan.Text([]byte(value)); ok {
			t.Errorf("%s: %q", value, got)
		}
	}
}

// FuzzMembers: entering everything is as strict as encoding/json.Valid.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"\u0061"}`))
	f.Add([]byte(` [ ] `))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if strings.Count(string(doc), "[")+strings.Count(string(doc), "{") > 1000 {
			t.Skip("walk recurses")
		}
		m := jsonscan.NewMembers(doc)
		var out []string
		walk(m, "", &out)
		err := m.End()
		if json.Valid(doc) != (err == nil) {
			t.Fatalf("valid: %v, error %v", json.Valid(doc), err)
		}
		if syntax := new(jsonscan.SyntaxError); err != nil && !errors.Is(err, jsonscan.ErrTruncated) &&
			!errors.As(err, &syntax) {
			t.Fatalf("error %v", err)
		}
	})
}

// A document may contain a value of the most levels, wherever it is: the limit is that of the
// value.
func TestMembersOfDeepestValue(t *testing.T) {
	deepest := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	m := jsonscan.NewMembers([]byte(`{"data":{"after":` + deepest + `}}`))
	m.Enter('{')
	m.Next()
	m.Enter('{')
	m.Next()
	got := m.Value()
	m.Next() // the end of data
	m.Next() // the end of the document
	if err := m.End(); err != nil || string(got) != deepest {
		t.Errorf("%v, got %d bytes, want %d", err, len(got), len(deepest))
	}
	m = jsonscan.NewMembers([]byte("[" + deepest + "]"))
	m.Value()
	if m.End() == nil {
		t.Error("a value of 10,001 levels has no error")
	}
}
