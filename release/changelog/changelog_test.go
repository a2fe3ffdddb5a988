package changelog_test

import (
	"io/fs"
	"os"
	"path/filepath"
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

func TestChart(t *testing.T) {
	const page = "`helm install kubecdc charts/kubecdc -n kubecdc`, helm upgrade kubecdc oci://ghcr.io/kubecdc/charts/kubecdc --version 0.0.9 -f x\n" +
		"helm template kubecdc charts/kubecdc\n"
	for text, want := range map[string]string{
		"## Unreleased\n": "charts/kubecdc",
		"## Unreleased\n## v0.1.0-rc.1 - 2026-11-01\n": "charts/kubecdc",
		before: "oci://ghcr.io/kubecdc/charts/kubecdc --version 0.1.0",
		"## Unreleased\n## v0.2.0-rc.1 - 2026-12-01\n## v0.1.0 - 2026-11-01\n": "oci://ghcr.io/kubecdc/charts/kubecdc --version 0.1.0",
	} {
		all, err := changelog.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		chart := changelog.Chart(all)
		if chart != want {
			t.Errorf("%q: got %s, want %s", text, chart, want)
		}
		got := changelog.Install(page, chart)
		if charts := changelog.Charts(got); len(charts) != 2 || charts[0] != want || charts[1] != want ||
			!strings.HasSuffix(got, " -f x\nhelm template kubecdc charts/kubecdc\n") {
			t.Errorf("got %s", got)
		}
	}
}

// TestPagesInstallTheLatestRelease: until there is one, the chart of the sources.
func TestPagesInstallTheLatestRelease(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := changelog.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want, listed := changelog.Chart(all), map[string]bool{}
	for _, page := range changelog.Pages() {
		listed["../../"+page] = true
	}
	for _, tree := range []string{"../../README.md", "../../charts", "../../docs", "../../examples"} {
		err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") && !strings.HasSuffix(path, ".gotmpl") ||
				strings.Contains(path, "/decisions/") {
				return err
			}
			b, err := os.ReadFile(path)
			charts := changelog.Charts(string(b))
			for _, chart := range charts {
				if chart != want {
					t.Errorf("%s installs %s, want %s", path, chart, want)
				}
			}
			if listed[path] != (len(charts) > 0) {
				t.Errorf("%s has %d commands that install the chart, and is among the pages: %t", path, len(charts),
					listed[path])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
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
