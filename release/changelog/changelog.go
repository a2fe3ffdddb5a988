// Package changelog reads and edits CHANGELOG.md: a section for each release, the newest first,
// below the section Unreleased.
package changelog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const unreleased = "## Unreleased"

// heading is the first line of a release's section: ## v1.2.3 - 2026-12-01.
var heading = regexp.MustCompile(`^## (v\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?) - (\d{4}-\d{2}-\d{2})$`)

// Section is the changelog's part about a release, or about what is not released.
type Section struct {
	Version string // v1.2.3; "": not released
	Date    string // 2026-12-01
	Text    string // without its heading
}

// Parse returns the sections in their order. The first one is Unreleased. It returns an error if a
// heading has another form, a version is there twice, or a date is later than that of the section
// above.
func Parse(text string) ([]Section, error) {
	var all []Section
	seen := map[string]bool{}
	for i, line := range strings.SplitAfter(text, "\n") {
		bare := strings.TrimRight(line, "\n")
		switch match := heading.FindStringSubmatch(bare); {
		case match != nil:
			if len(all) == 0 {
				return nil, fmt.Errorf("line %d: %s is above %q", i+1, bare, unreleased)
			}
			if _, err := time.Parse(time.DateOnly, match[2]); err != nil || seen[match[1]] {
				return nil, fmt.Errorf("line %d: %s: a version that is there twice, or a wrong date", i+1, bare)
			}
			if above := all[len(all)-1].Date; above != "" && above < match[2] {
				return nil, fmt.Errorf("line %d: %s is later than the section above", i+1, bare)
			}
			seen[match[1]] = true
			all = append(all, Section{Version: match[1], Date: match[2]})
		case bare == unreleased && len(all) == 0:
			all = append(all, Section{})
		case strings.HasPrefix(bare, "## "):
			return nil,
				fmt.Errorf("line %d: %q is neither %q nor a heading such as %q", i+1, bare, unreleased,
					"## v1.2.3 - 2026-12-01")
		case len(all) > 0:
			all[len(all)-1].Text += line
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("it has no section %q", unreleased)
	}
	for i := range all {
		all[i].Text = strings.TrimSpace(all[i].Text)
	}
	return all, nil
}

// Find returns the section of a version.
func Find(text, version string) (Section, error) {
	all, err := Parse(text)
	if err != nil {
		return Section{}, err
	}
	for _, s := range all {
		if s.Version == version {
			return s, nil
		}
	}
	return Section{}, fmt.Errorf("it has no section for %s", version)
}

// Cut returns the text in which what is not released belongs to version, and the section Unreleased
// is empty.
func Cut(text, version string, day time.Time) (string, error) {
	all, err := Parse(text)
	if err != nil {
		return "", err
	}
	if !strings.Contains(all[0].Text, "\n- ") && !strings.HasPrefix(all[0].Text, "- ") {
		return "", errors.New("nothing is unreleased: the section has no items")
	}
	title := fmt.Sprintf("## %s - %s", version, day.UTC().Format(time.DateOnly))
	if !heading.MatchString(title) {
		return "", fmt.Errorf("version %q: want one such as v1.2.3 or v1.2.3-rc.1", version)
	}
	cut := strings.Replace(text, unreleased+"\n", unreleased+"\n\n"+title+"\n", 1)
	if _, err := Parse(cut); err != nil {
		return "", err
	}
	return cut, nil
}

// install is a command that installs or upgrades the chart.
var install = regexp.MustCompile(
	`(helm (?:install|upgrade) kubecdc )(charts/kubecdc|oci://ghcr\.io/kubecdc/charts/kubecdc --version \S+)`)

// Charts returns the charts that the commands of a page install, as the commands name them.
func Charts(page string) []string {
	var all []string
	for _, m := range install.FindAllStringSubmatch(page, -1) {
		all = append(all, m[2])
	}
	return all
}

// Chart returns the chart that pages install: the directory of the sources until there is a
// release, then the chart of the latest release that is no candidate (v1.2.3-rc.1).
func Chart(all []Section) string {
	for _, s := range all {
		if s.Version != "" && !strings.Contains(s.Version, "-") {
			return "oci://ghcr.io/kubecdc/charts/kubecdc --version " + strings.TrimPrefix(s.Version, "v")
		}
	}
	return "charts/kubecdc"
}

// Install returns the page with commands that install this chart.
func Install(page, chart string) string { return install.ReplaceAllString(page, "${1}"+chart) }

// Pages are the files that have such commands.
func Pages() []string {
	return []string{
		"README.md", "charts/kubecdc/README.md", "charts/kubecdc/README.md.gotmpl", "charts/kubecdc/UPGRADE.md",
		"docs/guides/backup.md", "docs/guides/install.md",
		"docs/guides/select.md", "docs/guides/upgrade.md", "examples/README.md",
	}
}
