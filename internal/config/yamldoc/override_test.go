package yamldoc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

func decodeSet(t *testing.T, text string, into any, set ...string) (*yamldoc.Document, yamldoc.Errors) {
	t.Helper()
	o := &yamldoc.Options{
		Name:   "f.yaml",
		Lookup: func(name string) (string, bool) { return "<" + name + ">", name == "SET" },
		Alias:  func(path string) string { return path },
	}
	for _, s := range set {
		parsed, err := yamldoc.ParseOverride("--set", s)
		if err != nil {
			t.Fatal(err)
		}
		o.Set = append(o.Set, parsed)
	}
	return yamldoc.Decode([]byte(text), into, o)
}

func TestOverride(t *testing.T) {
	const file = "open: false\nbread: {kind: wheat, loaf: 9}\nshelf: [{name: a}, {name: b, for: 90s}]\ntill: {notes: {a: '1', b.c: '2'}}\n"
	for name, c := range map[string]struct {
		file string
		set  []string
		want func(s *shop)
	}{
		"scalars": {file, []string{"open=true", "bread.kind=rye: fresh", "bread.loaf=2"}, func(s *shop) {
			s.Open = true
			s.Bread = bread{Kind: "rye: fresh", Loaf: 2}
		}},
		"the last counts": {file, []string{"bread.loaf=2", "bread.loaf=4"}, func(s *shop) {
			s.Bread.Loaf = 4
		}},
		"empty text":               {file, []string{"bread.kind="}, func(s *shop) { s.Bread.Kind = "" }},
		"text that looks a number": {file, []string{"bread.kind=7"}, func(s *shop) { s.Bread.Kind = "7" }},
		"text that YAML rejects":   {file, []string{"bread.kind=*: @x"}, func(s *shop) { s.Bread.Kind = "*: @x" }},
		"variable":                 {file, []string{"bread.kind=${SET}"}, func(s *shop) { s.Bread.Kind = "<SET>" }},
		"list item":                {file, []string{"shelf[1].name=x=y"}, func(s *shop) { s.Shelf[1].Name = "x=y" }},
		"whole list": {file, []string{"shelf=[{name: c}]"}, func(s *shop) {
			s.Shelf = []shelf{{Name: "c"}}
		}},
		"empty list": {file, []string{"shelf=[]"}, func(s *shop) { s.Shelf = nil }},
		"mapping with its defaults": {
			file,
			[]string{"bread={spelt: true}"},
			func(s *shop) { s.Bread = bread{Kind: "rye", Loaf: 3, Spelt: true} },
		},
		"part of another override": {
			file,
			[]string{"bread.loaf=5", "bread={spelt: true}"},
			func(s *shop) { s.Bread = bread{Kind: "rye", Loaf: 5, Spelt: true} },
		},
		"keys with dots": {file, []string{"till.notes.b.c=3", "till.notes.d.e=4"}, func(s *shop) {
			s.Till.Notes = map[string]string{"a": "1", "b.c": "3", "d.e": "4"}
		}},
		"what the file lacks": {"bread:\n", []string{"till.float=7", "bread.spelt=true"}, func(s *shop) {
			*s = shop{Bread: bread{Kind: "rye", Loaf: 3, Spelt: true}, Till: &till{Float: 7}}
		}},
		"an empty file": {"", []string{"till.notes.a=1"}, func(s *shop) {
			*s = shop{Till: &till{Float: 50, Notes: map[string]string{"a": "1"}}}
		}},
		"a wrong value": {"bread: {loaf: many}\n", []string{"bread.loaf=2"}, func(s *shop) {
			*s = shop{Bread: bread{Kind: "rye", Loaf: 2}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got shop
			if _, errs := decode(t, file, &want); errs != nil {
				t.Fatal(errs)
			}
			c.want(&want)
			if _, errs := decodeSet(t, c.file, &got, c.set...); errs != nil {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An error names the override instead of a place in the file, and the rest of the file is checked
// all the same.
func TestOverrideErrors(t *testing.T) {
	var s shop
	doc, errs := decodeSet(t, "open: maybe\nshelf: [{name: a}]\n", &s,
		"bread.laof=1", "bread.loaf=many", "shelf[1].name=x", "shelf[0].for=soon", "open.door=1", "bread.kind=$x",
		"till=7", "opne=true", "shelf[0].name.first=x")
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	want := []string{
		"f.yaml:1:7: open: must be true or false, got \"maybe\"\n     1 | open: maybe\n       |       ^",
		`--set: shelf[0].for: must be a duration such as 90s, 2m, 12h or 7d, got "soon"`,
		"--set: bread.laof: unknown field, did you mean loaf?",
		`--set: bread.loaf: must be a whole number, got "many"`,
		"--set: bread.kind: $ must begin ${NAME}, an environment variable; write $$ for a literal $",
		`--set: till: must be a mapping with float, notes, got "7"`,
		"--set: opne: unknown field, did you mean open?",
		"--set: shelf[1].name: there is no such key or list item",
		"--set: shelf[0].name.first: there is no such key or list item",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if e := doc.Locate(&yamldoc.Error{Path: "shelf[0].for", Message: "m"}); e.Error() != "--set: shelf[0].for: m" {
		t.Errorf("located: %v", e)
	}
	for text, want := range map[string]string{
		"shelf[0].name=x": "--set: shelf: the file has no such list: set the whole list",
		"bread={kind: [}": `--set: bread: must be valid YAML: a list such as [a, b] or a mapping such as {a: b}, got "{kind: [}"`,
	} {
		if _, errs := decodeSet(t, "open: true\n", &s, text); errs.Error() != want {
			t.Errorf("%s: got %v", text, errs)
		}
	}
	for _, text := range []string{"", "bread", "=x", "bread kind=x", " bread=x", "[0]=x"} {
		if o, err := yamldoc.ParseOverride("--set", text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, o)
		}
	}
}
