package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/versions"
)

// The tables of the document have no versions but pinned ones, in their order. One that has not
// passed yet has no row.
func TestTables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("../..", document))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		_, rows, _, err := k.table.read(string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		got := []string{}
		for _, r := range rows {
			got = append(got, r[0])
			if _, err := time.Parse(time.DateOnly, r[len(r)-1]); err != nil {
				t.Errorf("%s %s: %v", k.title, r[0], err)
			}
		}
		pinned := slices.DeleteFunc(slices.Clone(k.versions), func(v string) bool { return !slices.Contains(got, v) })
		if diff := cmp.Diff(pinned, got); diff != "" {
			t.Errorf("%s: run make test-versions UPDATE=1: -want +got\n%s", k.title, diff)
		}
		if len(got) < len(k.versions) {
			t.Logf("%s: %v are pinned, %v have passed", k.title, k.versions, got)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	page := table{head: []string{"server", "mode", "run on"}}
	const before, after = "# Page\n\n| server | other | run on |\n|---|---|---|\n| 1.0 | x | 2020-01-01 |\n\n",
		"\nThe end | of it.\n"
	text := before + page.begin() +
		"| 1.0 | a | 2020-01-01 |\n| 0.9 | gone | 2020-01-01 |\n| 3.0 | c | 2020-01-01 |\n" + after
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	order := []string{"1.0", "2.0", "3.0"}
	for version, mode := range map[string]string{"2.0": "b", "1.0": "A"} {
		if err := page.write(file, order, version, []string{mode}); err != nil {
			t.Fatal(err)
		}
	}
	today := time.Now().UTC().Format(time.DateOnly)
	want := before + page.begin() + "| 1.0 | A | " + today + " |\n| 2.0 | b | " + today +
		" |\n| 3.0 | c | 2020-01-01 |\n" + after
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the page: -want +got\n%s", diff)
	}
	if err := (table{head: []string{
		"absent", "run on",
	}}).write(file, order, "1.0", nil); err == nil || !strings.Contains(err.Error(), "no table of absent") {
		t.Errorf("a table that is absent: %v", err)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	k := kind{title: "Server", versions: []string{"1.0", "2.0", "3.0"}}
	for text, want := range map[string][]string{
		"":        {"1.0", "2.0", "3.0"},
		"none":    nil,
		"oldest":  {"1.0"},
		"3.0 1.0": {"3.0", "1.0"},
		"2.0,":    {"2.0"},
		"2":       {"2.0"},
	} {
		got, err := k.choose(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v: -want +got\n%s", text, err, diff)
		}
	}
	if _, err := k.choose("1.0 4.0"); err == nil ||
		!strings.Contains(err.Error(), `unknown version "4.0", known are 1.0, 2.0, 3.0`) {
		t.Errorf("an unknown version: %v", err)
	}
}

// A result about records that get lost is no failure for versions that are known to lose them.
func TestKnownLosses(t *testing.T) {
	t.Parallel()
	lossy := 0
	for _, version := range natsServer().versions {
		if versions.NATS().Loses(version) {
			lossy++
		}
	}
	if lossy == 0 || lossy == len(natsServer().versions) {
		t.Errorf("%d of %v are known to lose records", lossy, natsServer().versions)
	}
}
