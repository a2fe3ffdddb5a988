// Command cut cuts a release. The unreleased items of CHANGELOG.md get a section of their own, and
// the pages install the chart of the release. The command commits that and makes the tag. It pushes
// nothing.
//
//	cut [--check] v1.2.3
//	cut --notes v1.2.3
//
// It first runs what a release must not be without (targets below) on the commit, and refuses if
// one fails or if the Makefile lacks it. It notes in .cache/release which targets have passed on a
// commit, and does not run them again. --check only says whether a release can be cut. --notes
// prints the section of a release.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/kubecdc/kubecdc/release/changelog"
)

// targets returns targets of the Makefile. They test the versions of Kubernetes, NATS and Kafka,
// the clients of `kubecdc serve` and of the bus, the attacks of docs/security.md, and known
// vulnerabilities.
func targets() []string {
	return []string{"vulncheck", "test-versions", "test-clients", "test-hostile"}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	check := flag.Bool("check", false, "only say whether the release can be cut")
	notes := flag.Bool("notes", false, "print the section of the release")
	root := flag.String("C", "..", "directory of the repository")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: cut [--check | --notes] v1.2.3")
		os.Exit(2)
	}
	c := cutter{
		root:    *root,
		version: flag.Arg(0),
		out:     os.Stdout,
		now:     time.Now(),
	}
	var err error
	switch {
	case *notes:
		err = c.notes()
	default:
		err = c.cut(ctx, !*check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cut:", err)
		os.Exit(1) //nolint:gocritic // The signal handler ends with the process.
	}
}

type cutter struct {
	root, version string
	out           io.Writer
	now           time.Time
}

func (c *cutter) changelog() string { return filepath.Join(c.root, "CHANGELOG.md") }

func (c *cutter) notes() error {
	text, err := os.ReadFile(c.changelog())
	if err != nil {
		return err
	}
	s, err := changelog.Find(string(text), c.version)
	if err != nil {
		return fmt.Errorf("CHANGELOG.md: %w", err)
	}
	if s.Text == "" {
		return fmt.Errorf("CHANGELOG.md: the section for %s is empty", c.version)
	}
	_, err = fmt.Fprintln(c.out, s.Text)
	return err
}

// cut checks everything that costs little before it runs the tests.
func (c *cutter) cut(ctx context.Context, write bool) error {
	if err := c.checkVersion(ctx); err != nil {
		return err
	}
	commit, err := c.cleanCommit(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.changelog())
	if err != nil {
		return err
	}
	cut, err := changelog.Cut(string(text), c.version, c.now)
	if err != nil {
		return fmt.Errorf("CHANGELOG.md: %w", err)
	}
	for _, target := range targets() {
		if err := c.pass(ctx, commit, target); err != nil {
			return err
		}
	}
	// Tests may have changed files, and somebody may have committed since.
	if now, err := c.cleanCommit(ctx); err != nil || now != commit {
		return errors.Join(err, fmt.Errorf("the tests ran on %s, which is no longer what is here", commit))
	}
	if !write {
		_, err = fmt.Fprintf(c.out, "%s can be cut from %s\n", c.version, commit)
		return err
	}
	if err := os.WriteFile(c.changelog(), []byte(cut), 0o644); err != nil { //nolint:gosec // A document.
		return err
	}
	if err := c.writeCharts(cut); err != nil {
		return err
	}
	if _, err := c.git(ctx, "commit", "--quiet", "--all", "-m", "docs: the changelog has "+c.version); err != nil {
		return err
	}
	if _, err := c.git(ctx, "tag", "-a", c.version, "-m", "kubecdc "+c.version); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is cut. To release it: git push origin HEAD %s\n", c.version, c.version)
	return err
}

// writeCharts makes the pages install the chart of the latest release of the changelog.
func (c *cutter) writeCharts(text string) error {
	all, err := changelog.Parse(text)
	if err != nil {
		return err
	}
	for _, name := range changelog.Pages() {
		path := filepath.Join(c.root, name)
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := []byte(changelog.Install(string(page), changelog.Chart(all)))
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // A document.
			return err
		}
	}
	return nil
}

// checkVersion fails if the version is not later than all tags.
func (c *cutter) checkVersion(ctx context.Context) error {
	if !semver.IsValid(c.version) || semver.Canonical(c.version) != c.version {
		return fmt.Errorf("version %q: want one such as v1.2.3 or v1.2.3-rc.1", c.version)
	}
	tags, err := c.git(ctx, "tag", "--list", "v*")
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		if semver.IsValid(tag) && semver.Compare(tag, c.version) >= 0 {
			return fmt.Errorf("%s is not later than the tag %s", c.version, tag)
		}
	}
	return nil
}

// cleanCommit returns the commit of the working tree. It fails if a file differs from it.
func (c *cutter) cleanCommit(ctx context.Context) (string, error) {
	changed, err := c.git(ctx, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" {
		return "", fmt.Errorf("files differ from the commit:\n%s", changed)
	}
	return c.git(ctx, "rev-parse", "HEAD")
}

// pass returns nil if the target has passed on the commit, now or before.
func (c *cutter) pass(ctx context.Context, commit, target string) error {
	noted := filepath.Join(c.root, ".cache", "release", commit, target)
	if _, err := os.Stat(noted); err == nil {
		return nil
	}
	makefile, err := os.ReadFile(filepath.Join(c.root, "Makefile"))
	if err != nil {
		return err
	}
	isTarget := func(line string) bool { return strings.HasPrefix(line, target+":") }
	if !slices.ContainsFunc(strings.Split(string(makefile), "\n"), isTarget) {
		return fmt.Errorf("no release without make %s: the Makefile has no such target", target)
	}
	fmt.Fprintf(c.out, "=== make %s\n", target)
	run := exec.CommandContext(ctx, "make", "-C", c.root, target)
	run.Stdout, run.Stderr = c.out, c.out
	if err := run.Run(); err != nil {
		return fmt.Errorf("no release without make %s: %w", target, err)
	}
	if err := os.MkdirAll(filepath.Dir(noted), 0o755); err != nil { //nolint:gosec // Not secret.
		return err
	}
	return os.WriteFile(noted, []byte(c.now.UTC().Format(time.RFC3339)+"\n"), 0o644) //nolint:gosec // Not secret.
}

func (c *cutter) git(ctx context.Context, args ...string) (string, error) {
	b, err := exec.CommandContext(ctx, "git", append([]string{"-C", c.root}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, b)
	}
	return strings.TrimSpace(string(b)), nil
}
