package object_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

// head is object.Head in terms that compare: of labels of one name the last.
type head struct {
	Namespace, Name string

	Labels map[string]string
}

func headOf(h *object.Head) head {
	out := head{string(h.Namespace), string(h.Name), map[string]string{}}
	for _, l := range h.Labels {
		out.Labels[string(l.Name)] = string(l.Value)
	}
	return out
}

func TestPeek(t *testing.T) {
	var h object.Head
	for _, tc := range []struct {
		in   string
		want head
	}{
		{
			`{"spec":{"metadata":{"name":"no"}},"metadata":{"labels":{"a":"1","b.c/d":""},"name":"n","namespace":"s"},"x":[1]}`,
			head{"s", "n", map[string]string{"a": "1", "b.c/d": ""}},
		},
		{`{"kind":"Node","metadata":{"name":"n"}}`, head{"", "n", nil}},
		{`{"m\u0065tadata":{"n\u0061me":"\u006e","labels":{"\u0061":"\u0031"}}}`, head{"", "n", map[string]string{
			"a": "1",
		}}},
		{`{"metadata":{"name":"old","namespace":"s","labels":{"a":"1"}},"metadata":{"name":"new"}}`, head{
			"", "new", nil,
		}},
		{`{"metadata":{"name":"old"},"metad\u0061ta":{"name":"new"}}`, head{"", "new", nil}},
		{`{"metadata":{"labels":{"a":"1"},"labels":{"b":"1","b":"2"}}}`, head{"", "", map[string]string{"b": "2"}}},
		{`{"metadata":{"labels":{"a":"1"},"labels":null}}`, head{}},
		{`{"metadata":{"labels":{"a":"1"},"name":null,"namespace":3},"metadata":[]}`, head{}},
		{`[]`, head{}},
	} {
		if err := h.Peek([]byte(tc.in)); err != nil {
			t.Fatalf("%s: %v", tc.in, err)
		}
		if tc.want.Labels == nil {
			tc.want.Labels = map[string]string{}
		}
		if diff := cmp.Diff(tc.want, headOf(&h)); diff != "" {
			t.Errorf("%s: %s", tc.in, diff)
		}
		for name, want := range tc.want.Labels {
			if got, has := h.Labels.Lookup(name); got != want || !has || !h.Labels.Has(name) ||
				h.Labels.Get(name) != want {
				t.Errorf("%s: label %s is %q, %v", tc.in, name, got, has)
			}
		}
		if got, has := h.Labels.Lookup("none"); got != "" || has || h.Labels.Has("none") || h.Labels.Get("none") != "" {
			t.Errorf("%s: a label that there is not is %q, %v", tc.in, got, has)
		}
	}
	for _, in := range []string{
		``, `{`, `{"metadata":{"name":"n"`, `{"metadata":{"labels":{"a":}}}`, `{"spec":{"a"},"metadata":{"name":"n"}}`,
	} {
		if err := h.Peek([]byte(in)); err == nil {
			t.Errorf("%s: no error", in)
		}
	}
}

func FuzzPeek(f *testing.F) {
	for _, name := range samples {
		f.Add(sample(f, name))
	}
	f.Add([]byte(` {"metadata" : {"labels":{"a":1,"\u0062":"\ud800"},"name":"x" , "namespace":null}, "spec":{} } `))
	var h object.Head
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := h.Peek(raw)
		if !json.Valid(raw) {
			return // Scan says so; to read on is all that is wanted
		}
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		tree, _ := decode(t, raw).(map[string]any)
		meta, _ := tree["metadata"].(map[string]any)
		want := head{Labels: map[string]string{}}
		want.Namespace, _ = meta["namespace"].(string)
		want.Name, _ = meta["name"].(string)
		labels, _ := meta["labels"].(map[string]any)
		for name, value := range labels {
			want.Labels[name], _ = value.(string)
		}
		if diff := cmp.Diff(want, headOf(&h)); diff != "" {
			t.Fatalf("%q: %s", raw, diff)
		}
	})
}
