package yamldoc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

type shop struct {
	Open  bool    `yaml:"open"`
	Shelf []shelf `yaml:"shelf"`
	Bread bread   `yaml:"bread"`
	Till  *till   `yaml:"till"`
}

type till struct {
	Float int               `yaml:"float"`
	Notes map[string]string `yaml:"notes"`
}

func (t *till) SetDefaults() { *t = till{Float: 50} }

type shelf struct {
	Name string           `yaml:"name"`
	For  yamldoc.Duration `yaml:"for"`
}

type bread struct {
	Kind  string `yaml:"kind"`
	Loaf  int    `yaml:"loaf"`
	Spelt bool   `yaml:"spelt"`
}

func (b *bread) SetDefaults() { *b = bread{Kind: "rye", Loaf: 3} }

func decode(t *testing.T, text string, into any) (*yamldoc.Document, yamldoc.Errors) {
	t.Helper()
	return yamldoc.Decode([]byte(text), into, &yamldoc.Options{
		Name:   "f.yaml",
		Lookup: func(name string) (string, bool) { return "<" + name + ">", name == "SET" },
		Alias:  func(path string) string { return path },
	})
}

func TestDecode(t *testing.T) {
	s := shop{Open: true, Bread: bread{Kind: "wheat", Loaf: 9}}
	doc, errs := decode(t, "shelf:\n  - name: ${SET}\n    for: 90s\nbread:\n  spelt: true\n", &s)
	if errs != nil {
		t.Fatal(errs)
	}
	want := shop{Open: true, Bread: bread{Kind: "rye", Loaf: 3, Spelt: true}, Shelf: []shelf{{Name: "<SET>"}}}
	want.Shelf[0].For.Duration = 90e9
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	if doc.Has("open") || !doc.Has("shelf[0].for") {
		t.Error("Has reports a key that is not there, or misses one that is")
	}
	if line, column := doc.Position("shelf[0].for"); line != 3 || column != 10 {
		t.Errorf("shelf[0].for is at %d:%d", line, column)
	}
	if e := doc.Locate(&yamldoc.Error{Path: "shelf[0].for.unit"}); e.File != "f.yaml" || e.Line != 3 || e.Column != 10 {
		t.Errorf("an error below shelf[0].for is at %+v", e)
	}
}

// A mapping with a switch may be written as true or false.
func TestSwitch(t *testing.T) {
	type lamp struct {
		Light *light `yaml:"light"`
	}
	for _, c := range []struct {
		text, set, want string
		light           *light
	}{
		{text: "light: true", light: &light{Watts: 40, Dim: true}},
		{text: "light: false"},
		{text: "light:", light: &light{Watts: 40, Dim: true}},
		{text: "light: {watts: 7}", light: &light{Watts: 7, Dim: true}},
		{text: "light: &on true", light: &light{Watts: 40, Dim: true}},
		{text: "light: false", set: "light=true", light: &light{Watts: 40, Dim: true}},
		{text: "light: {watts: 7}", set: "light=false"},
		{text: "light: true", set: "light.watts=9", light: &light{Watts: 9, Dim: true}},
		{text: "light: true", set: "light={dim: false}", light: &light{Watts: 40}},
		{text: "light: 7", want: "light: must be true or false, or a mapping with watts, dim, got 7"},
		{text: "light: [true]", want: "light: must be true or false, or a mapping with watts, dim, got a list"},
		{
			text: "light: 'true'",
			want: `light: must be true or false without quotes, or a mapping with watts, dim, got "true"`,
		},
		{text: "light: false", set: "light.watts=9", want: "light.watts: there is no such key or list item"},
	} {
		var set []string
		if c.set != "" {
			set = []string{c.set}
		}
		got := lamp{}
		_, errs := decodeSet(t, c.text, &got, set...)
		if diff := cmp.Diff(c.light, got.Light); diff != "" {
			t.Errorf("%s with %q: %s", c.text, c.set, diff)
		}
		text := ""
		if len(errs) > 0 {
			text = errs[0].Path + ": " + errs[0].Message
		}
		if text != c.want {
			t.Errorf("%s with %q: got %q, want %q", c.text, c.set, text, c.want)
		}
	}
}

type light struct {
	Watts int  `yaml:"watts"`
	Dim   bool `yaml:"dim"`
}

func (*light) Switch() {}

func (l *light) SetDefaults() { *l = light{Watts: 40, Dim: true} }

// All errors are reported at once, and a value that cannot be decoded changes nothing.
func TestDecodeErrors(t *testing.T) {
	s := shop{Open: true}
	_, errs := decode(t, "opne: true\nopen: maybe\nbread: {laof: 1}\nshelf: [{name: $UNSET}, {loaf: 1}]\n", &s)
	var got []string
	for _, e := range errs {
		got = append(got, e.Path+": "+e.Message)
	}
	want := []string{
		"opne: unknown field, did you mean open?",
		`open: must be true or false, got "maybe"`,
		"bread.laof: unknown field, did you mean loaf?",
		"shelf[0].name: $ must begin ${NAME}, an environment variable; write $$ for a literal $",
		"shelf[1].loaf: unknown field, did you mean bread.loaf?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !s.Open || !errs.Covers("shelf") || !errs.Covers("open.door") || errs.Covers("bread.kind") {
		t.Errorf("%+v, %v", s, errs)
	}
}
