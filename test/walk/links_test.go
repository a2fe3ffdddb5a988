package walk_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced       = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineCode   = regexp.MustCompile("`[^`\n]*`")
	heading      = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notInAnchor  = regexp.MustCompile(`[^\pL\pN _-]`)
	scheme       = regexp.MustCompile(`^[a-z]+:`)
	namedPage    = regexp.MustCompile(`(?:blob/main/)?\bdocs/[\w./-]+\.md(#[\w-]+)?`)
)

// documents returns the Markdown files of the repository, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, tree := range []string{
		"README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "docs", "charts", "examples",
	} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.Name() == "node_modules" {
				return fs.SkipDir
			}
			if strings.HasSuffix(file, ".md") {
				rel, err := filepath.Rel(root, file)
				if err != nil {
					return err
				}
				pages[filepath.ToSlash(rel)] = read(t, rel)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pages
}

// linksOf returns the targets of a page's links, relative to the repository, with their anchors.
func linksOf(page, text string) []string {
	var links []string
	for _, m := range markdownLink.FindAllStringSubmatch(
		inlineCode.ReplaceAllString(fenced.ReplaceAllString(text, ""), "code"), -1) {
		if scheme.MatchString(m[1]) {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		target := page
		if file != "" {
			target = path.Join(path.Dir(page), file)
		}
		if anchor != "" {
			target += "#" + anchor
		}
		links = append(links, target)
	}
	return links
}

// anchorsOf returns the anchors that GitHub derives from a page's headings.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := markdownLink.ReplaceAllString(strings.NewReplacer("`", "", "[", "", "*", "").Replace(m[1]), "")
		anchors[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return anchors
}

// leadsSomewhere returns the reason why a link is broken, or "" if it is not.
func leadsSomewhere(link string, pages map[string]string) string {
	file, anchor, _ := strings.Cut(link, "#")
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		return "no such file"
	}
	if text, ok := pages[file]; ok && anchor != "" && !anchorsOf(text)[anchor] {
		return "no such heading"
	}
	return ""
}

func TestLinks(t *testing.T) {
	pages := documents(t)
	checked := 0
	for page, text := range pages {
		for _, link := range linksOf(page, text) {
			checked++
			if why := leadsSomewhere(link, pages); why != "" {
				t.Errorf("%s: %s: %s", page, link, why)
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d links: the test shows nothing", checked)
	}
}

// TestIndex checks that each page is linked from docs/README.md, or from the index of its folder
// (README.md).
func TestIndex(t *testing.T) {
	pages := documents(t)
	linked, indexes := map[string]bool{"docs/README.md": true}, []string{"docs/README.md"}
	for len(indexes) > 0 {
		index := indexes[0]
		indexes = indexes[1:]
		for _, link := range linksOf(index, pages[index]) {
			target, _, _ := strings.Cut(link, "#")
			if path.Base(target) == "README.md" && strings.HasPrefix(target, "docs/") && !linked[target] {
				indexes = append(indexes, target)
			}
			linked[target] = true
		}
	}
	for page := range pages {
		if strings.HasPrefix(page, "docs/") && !linked[page] {
			t.Errorf("%s is in no index", page)
		}
	}
}

// TestNamedPages checks the pages that code, configuration and the chart name: in error messages,
// links of alerts, comments.
func TestNamedPages(t *testing.T) {
	pages := documents(t)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--", "*.go", "*.yaml", "*.json", "*.tpl", "*.gotmpl",
		"*.txt", "*.txtar", "Makefile")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	named := 0
	for file := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(file, "test/prose/") { // its tests name pages that do not exist
			continue
		}
		for _, page := range namedPage.FindAllString(read(t, file), -1) {
			named++
			if why := leadsSomewhere(strings.TrimPrefix(page, "blob/main/"), pages); why != "" {
				t.Errorf("%s: %s: %s", file, page, why)
			}
		}
	}
	if named < 20 {
		t.Errorf("%d pages are named: the test shows nothing", named)
	}
}
