package changelog_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/release/changelog"
)

var day = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

const before = `# Changelog

Changes that matter.

## Unreleased

### Added

- a thing

## v0.1.0 - 2026-11-01

- the first
`

func TestCut(t *testing.T) {
	after, err := changelog.Cut(before, "v0.2.0", day)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(before, "## Unreleased\n", "## Unreleased\n\n## v0.2.0 - 2026-12-01\n", 1)
	if after != want {
		t.Errorf("got:\n%s", after)
	}
	for version, text := range map[string]string{"": "", "v0.2.0": "### Added\n\n- a thing", "v0.1.0": "- the first"} {
		if s, err := changelog.Find(after, version); err != nil || s.Text != text {
			t.Errorf("%q: %q, %v", version, s.Text, err)
		}
	}
	if _, err := changelog.Find(after, "v0.3.0"); err == nil {
		t.Error("a version that is not there is found")
	}
}

func TestCutRefuses(t *testing.T) {
	for want, c := range map[string]struct{ text, version string }{
		"no items":               {strings.Replace(before, "- a thing", "", 1), "v0.2.0"},
		"there twice":            {before, "v0.1.0"},
		"want one such as":       {before, "0.2.0"},
		"no section":             {"# Changelog\n", "v0.2.0"},
		"is neither":             {strings.Replace(before, "v0.1.0 - ", "v0.1.0 ", 1), "v0.2.0"},
		"later than the section": {strings.Replace(before, "2026-11-01", "2026-12-02", 1), "v0.2.0"},
	} {
		if _, err := changelog.Cut(c.text, c.version, day); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestChangelog parses the one of the repository.
func TestChangelog(t *testing.T) {
	b, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := changelog.Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if len(all[0].Text)+len(all[len(all)-1].Text) == 0 {
		t.Error("it is empty")
	}
}
