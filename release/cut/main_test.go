package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/release/changelog"
)

const unreleased = "# Changelog\n\n## Unreleased\n\n### Added\n\n- a thing\n"

// repository is a new one whose targets note that they ran. Those of failing fail, those of missing
// are not there.
func repository(t *testing.T, failing, missing string) *cutter {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL":   os.DevNull,
		"GIT_CONFIG_SYSTEM":   os.DevNull,
		"GIT_AUTHOR_NAME":     "t",
		"GIT_AUTHOR_EMAIL":    "t@example.com",
		"GIT_COMMITTER_NAME":  "t",
		"GIT_COMMITTER_EMAIL": "t@example.com",
		"MAKEFLAGS":           "",
	} {
		t.Setenv(name, value)
	}
	makefile := ""
	for _, target := range targets() {
		if target != missing {
			makefile += target + ": ## Test\n\t@echo " + target + " >>.cache/ran\n"
		}
		if target == failing {
			makefile += "\t@false\n"
		}
	}
	c := &cutter{root: dir, version: "v0.1.0", out: t.Output(), now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	write(t, c, "Makefile", makefile)
	write(t, c, "CHANGELOG.md", unreleased)
	write(t, c, ".gitignore", ".cache\n")
	for _, page := range changelog.Pages() {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(page)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, c, page, "helm install kubecdc charts/kubecdc\n")
	}
	if err := os.Mkdir(filepath.Join(dir, ".cache"), 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, c, "init", "--quiet", "--initial-branch=main")
	git(t, c, "add", ".")
	git(t, c, "commit", "--quiet", "-m", "all")
	return c
}

func write(t *testing.T, c *cutter, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c *cutter, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func git(t *testing.T, c *cutter, args ...string) string {
	t.Helper()
	out, err := c.git(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCut(t *testing.T) {
	c := repository(t, "", "")
	tested := git(t, c, "rev-parse", "HEAD")
	if err := c.cut(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if git(t, c, "rev-parse", "HEAD") != tested || git(t, c, "tag") != "" || read(t, c, "CHANGELOG.md") != unreleased {
		t.Error("--check has changed something")
	}
	if err := c.cut(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	// The targets that have passed on this commit do not run again.
	if got, want := read(t, c, ".cache/ran"), strings.Join(targets(), "\n")+"\n"; got != want {
		t.Errorf("ran:\n%s", got)
	}
	if git(t, c, "rev-parse", "v0.1.0^{commit}") != git(t, c, "rev-parse", "HEAD") ||
		git(t, c, "rev-parse", "HEAD^") != tested {
		t.Error("the tag is not the commit after the one that was tested")
	}
	want := append([]string{"CHANGELOG.md"}, changelog.Pages()...)
	slices.Sort(want)
	if changed := strings.Fields(git(t, c, "diff", "--name-only", "HEAD^")); !slices.Equal(changed, want) {
		t.Errorf("the commit changes %s", changed)
	}
	const wantPage = "helm install kubecdc oci://ghcr.io/kubecdc/charts/kubecdc --version 0.1.0\n"
	if page := read(t, c, "README.md"); page != wantPage {
		t.Errorf("README: %s", page)
	}
	var notes strings.Builder
	c.out = &notes
	if err := c.notes(); err != nil || notes.String() != "### Added\n\n- a thing\n" {
		t.Errorf("notes %q, %v", notes.String(), err)
	}
}

func TestNoReleaseWithout(t *testing.T) {
	for _, target := range targets() {
		for name, c := range map[string]func(t *testing.T) *cutter{
			"failing": func(t *testing.T) *cutter { t.Helper(); return repository(t, target, "") },
			"missing": func(t *testing.T) *cutter { t.Helper(); return repository(t, "", target) },
		} {
			t.Run(name+" "+target, func(t *testing.T) {
				c := c(t)
				for range 2 { // The first refusal does not make the second one milder.
					err := c.cut(t.Context(), true)
					if err == nil || !strings.Contains(err.Error(), "no release without make "+target) {
						t.Fatalf("got %v", err)
					}
				}
				if git(t, c, "tag") != "" || git(t, c, "status", "--porcelain") != "" ||
					read(t, c, "CHANGELOG.md") != unreleased {
					t.Error("something was changed")
				}
			})
		}
	}
}

func TestCutRefuses(t *testing.T) {
	for want, prepare := range map[string]func(t *testing.T, c *cutter){
		"files differ":         func(t *testing.T, c *cutter) { t.Helper(); write(t, c, "new", "") },
		"want one such as":     func(_ *testing.T, c *cutter) { c.version = "v1.2" },
		"is not later than":    func(t *testing.T, c *cutter) { t.Helper(); git(t, c, "tag", "v0.1.1") },
		"is no longer what is": func(t *testing.T, c *cutter) { t.Helper(); commitsWhileTesting(t, c) },
		"no items": func(t *testing.T, c *cutter) {
			t.Helper()
			write(t, c, "CHANGELOG.md", "## Unreleased\n")
			git(t, c, "commit", "--quiet", "-am", "empty")
		},
	} {
		t.Run(want, func(t *testing.T) {
			c := repository(t, "", "")
			prepare(t, c)
			if err := c.cut(t.Context(), true); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(git(t, c, "tag"), "v0.1.0") {
				t.Error("there is a tag")
			}
		})
	}
}

// commitsWhileTesting makes a target commit something.
func commitsWhileTesting(t *testing.T, c *cutter) {
	t.Helper()
	write(t, c, "Makefile", read(t, c, "Makefile")+"\t@git commit --quiet --allow-empty -m more\n")
	git(t, c, "commit", "--quiet", "-am", "target")
}
