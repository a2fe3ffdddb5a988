package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func TestParse(t *testing.T) {
	got, err := parse("a \x1b[1;31mb\x1b[0m\n\n\x1b[2mwide: 世界\nstill dim\x1b[22m not\x1b[m\n")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]span{
		{{text: "a ", cells: 2}, {text: "b", column: 2, cells: 1, style: style{foreground: 31, bold: true}}},
		nil,
		{{text: "wide: 世界", cells: 10, style: style{dim: true}}},
		{{text: "still dim", cells: 9, style: style{dim: true}}, {text: " not", column: 9, cells: 4}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{}, style{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseRefusesWhatItCannotDraw(t *testing.T) {
	for output, want := range map[string]string{
		"a\tb":               `line 1: cannot draw '\t' in "a\tb"`,
		"a\rb":               `line 1: cannot draw '\r' in "a\rb"`,
		"ok\n\x1b[2Kgone":    `line 2: no SGR sequence: "\x1b[2Kgone"`,
		"\x1b]8;;x\x07":      `line 1: no SGR sequence: "\x1b]8;;x\a"`,
		"\x1b[48;5;1mx":      `line 1: cannot draw SGR "48"`,
		"\x1b[31":            `line 1: no SGR sequence: "\x1b[31"`,
		"e\u0301":            "line 1: cannot draw '\u0301' in \"e\u0301\"",
		"\x1b[31mred\x1b[7m": `line 1: cannot draw SGR "7"`,
	} {
		_, err := parse(output)
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", output, err, want)
		}
	}
}

func TestRender(t *testing.T) {
	lines, err := parse("\x1b[32m$\x1b[0m kubecdc tail <\n    \x1b[1;31m- a & b\x1b[0m  ")
	if err != nil {
		t.Fatal(err)
	}
	got, err := render("kubecdc", lines, 20)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "window.svg")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := render("kubecdc", lines, 14); err == nil || err.Error() != "line 1 is wider than 14 columns" {
		t.Errorf("got error %v", err)
	}
}
