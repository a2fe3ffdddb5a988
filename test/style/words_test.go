package style_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/style"
)

// TestWords checks that a word of the glossary's part about the code means one thing in exported
// names, and that each package that the part names exists.
func TestWords(t *testing.T) {
	root := "../.."
	glossary, err := os.ReadFile(filepath.Join(root, "docs/concepts/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	words, err := style.ParseWords(string(glossary))
	if err != nil {
		t.Fatal(err)
	}
	packages := regexp.MustCompile("`((?:internal|pkg|cmd)/[a-z0-9/]+)`")
	for _, m := range packages.FindAllStringSubmatch(string(glossary), -1) {
		if sources, err := filepath.Glob(filepath.Join(root, m[1], "*.go")); err != nil || len(sources) == 0 {
			t.Errorf("the glossary names %s, which is no package", m[1])
		}
	}
	for _, path := range goFiles(t, root) {
		top, _, _ := strings.Cut(path, "/")
		if strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{"cmd", "internal", "pkg"}, top) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		names, err := style.Foreign(words, path, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			t.Errorf("%s: %s has a word that means something else: see docs/concepts/glossary.md", path, name)
		}
	}
}

// TestForeign has names with and without a word of a glossary.
func TestForeign(t *testing.T) {
	words, err := style.ParseWords("# G\n\n| term | meaning |\n|---|---|\n| a | b |\n\n" +
		"## The words of the code\n\n| word | the one thing | not | packages |\n|---|---|---|---|\n" +
		"| source | a bus | a queue | `pkg/consume` |\n| history | versions | answers | `pkg/consume` |\n" +
		"| takeover | of a lead | of a node | `pkg/consume` |\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file, src string
		want      []string
	}{
		"a type":             {"internal/queue/q.go", "type Source int", []string{"queue.Source"}},
		"a part of a name":   {"internal/queue/q.go", "func OpenSourceOf() {}", []string{"queue.OpenSourceOf"}},
		"a plural":           {"internal/queue/q.go", "var Histories int", []string{"queue.Histories"}},
		"two parts":          {"internal/queue/q.go", "const TakeOver = 1", []string{"queue.TakeOver"}},
		"a package":          {"internal/history/q.go", "type A int", []string{"package history"}},
		"a package of it":    {"pkg/consume/q.go", "type Source int", nil},
		"another word":       {"internal/queue/q.go", "type Resource int", nil},
		"not exported":       {"internal/queue/q.go", "type source int", nil},
		"a method":           {"internal/queue/q.go", "type A int\nfunc (A) Source() {}", nil},
		"a field":            {"internal/queue/q.go", "type A struct{ Source int }", nil},
		"two words in a row": {"internal/queue/q.go", "type OverTake int", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := style.Foreign(words, c.file, []byte("package p\n\n"+c.src+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
