package walk_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuarantees checks docs/reference/guarantees.md: each test that it names must exist, and each promise must name one.
func TestGuarantees(t *testing.T) {
	tests := testNames(t)
	mention := regexp.MustCompile("(?:`([a-z0-9]+)|-run) (Test\\w+)")
	test := regexp.MustCompile(`\bTest`)
	section, promises := "", 0
	for line := range strings.Lines(read(t, "docs/reference/guarantees.md")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			section = strings.TrimLeft(line, "# ")
		}
		named := mention.FindAllStringSubmatch(line, -1)
		for _, m := range named {
			if m[1] != "" && !tests[m[1]+" "+m[2]] {
				t.Errorf("%s: there is no %s in a package %s", section, m[2], m[1])
			}
		}
		if len(test.FindAllString(line, -1)) != len(named) {
			t.Errorf("%s: name tests as `package TestName`: %s", section, line)
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 2 || strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| promised") {
			continue
		}
		promises++
		if !strings.Contains(cells[1], " Test") {
			t.Errorf("%s: no test shows that %s", section, cells[0])
		}
	}
	if promises < 40 {
		t.Errorf("docs/reference/guarantees.md has %d promises: the test shows nothing", promises)
	}
}

// testNames returns all tests of all modules as "package TestName". The package is the folder's name: for internal/queue,
// "queue".
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, tree := range []string{"cmd", "internal", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			for _, m := range function.FindAllStringSubmatch(read(t, rel), -1) {
				names[filepath.Base(filepath.Dir(rel))+" "+m[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
