package yamldoc_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// hostile returns documents of about size bytes that cost the lexer or the parser more than their
// size.
func hostile(size int) map[string]string {
	fill := func(unit string) string { return strings.Repeat(unit, max(size/len(unit), 1)) }
	steps := func(unit string) string {
		var b strings.Builder
		for n := 0; b.Len()+n+len(unit) < size; n++ {
			b.WriteString(strings.Repeat(" ", n) + unit)
		}
		return b.String()
	}
	long := strings.Repeat("k", size/2)
	return map[string]string{
		"brackets":                      fill("["),
		"braces":                        "open: " + fill("{a: "),
		"pairs":                         fill("[a: "),
		"closed":                        strings.Repeat("[", size/2) + strings.Repeat("]", size/2),
		"closed in comments":            fill("[ # ]\n"),
		"closed in quotes":              "open: " + fill(`["]", `),
		"ends of lines":                 fill("[\r"),
		"items":                         fill("- "),
		"items and brackets":            fill("- ["),
		"items of mappings":             fill("- a: "),
		"indentation":                   steps("a:\n"),
		"indented items":                steps("-\n"),
		"empty items":                   fill("a:\n-\n"),
		"anchors":                       fill("&a ["),
		"anchors of items":              fill("- &a\na:\n"),
		"tags":                          fill("!a ["),
		"tags of mappings":              fill("a: !!map\n"),
		"mappings with foreign ends":    "{" + fill("a: {x:\nb: c\n},"),
		"a long key of a list":          long + ": [" + strings.Repeat("1,", size/4) + "]",
		"a long key of a block list":    long + ":\n" + strings.Repeat("- 1\n", size/8),
		"a long key of a mapping":       long + ": {" + strings.Repeat("a,", size/4) + "}",
		"a long key of a block mapping": long + ":\n" + strings.Repeat(" a:\n", size/8),
		"blank lines of a text":         "a: |\n" + fill("\n"),
		"blank lines of spaces":         "a: |\n" + fill("  \r"),
		"keys with a question mark":     fill("? "),
		"questions in braces":           "{" + fill("? a: {"),
	}
}

// 120 KB of [ took 21 GB, 128 KB of a list with a long key 8 GB, and blank lines of a text minutes.
// The documents are smaller here: without the limits the test fails, and does not fill the memory.
func TestHostileDocumentCostsLittle(t *testing.T) {
	const (
		size = 24 << 10
		most = 24 << 20
	)
	for name, text := range hostile(size) {
		for what, decode := range map[string]func() yamldoc.Errors{
			"a file": func() yamldoc.Errors {
				_, errs := yamldoc.Decode([]byte(text), &shop{}, &yamldoc.Options{Name: "f.yaml", Alias: plain})
				return errs
			},
			"--set": func() yamldoc.Errors {
				o := yamldoc.Override{Path: "shelf", Value: "[" + text, Source: "--set"}
				_, errs := yamldoc.Decode(nil, &shop{}, &yamldoc.Options{Set: []yamldoc.Override{o}, Alias: plain})
				return errs
			},
		} {
			before := allocated()
			errs := decode()
			cost := allocated() - before
			if len(errs) != 1 {
				t.Errorf("%s, %s: errors: %.300v", what, name, errs)
			}
			if cost > most {
				t.Errorf("%s, %s: took %d MiB, %d times its size", what, name, cost>>20, cost/size)
			}
		}
	}
}

func plain(path string) string { return path }

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestLimitsOfADocument(t *testing.T) {
	for want, text := range map[string]string{
		"f.yaml:1:65: must not be nested deeper than 64 levels":          strings.Repeat("[", 65),
		"f.yaml:502:1: must not have more than 500 blank lines in a row": "a: |" + strings.Repeat("\r\n", 502) + "b: c",
		"f.yaml:1:70481: must not have such long keys: the paths of all values, such as watch[0].resources[1], must have less than 32MiB together": "" +
			strings.Repeat("k", 70000) + ": [" + strings.Repeat("1,", 70000) + "]",
		"f.yaml:2:1: a key that begins with ? is not supported; a text that begins with ? needs quotes": "open: true\n? a\n: b\n",
	} {
		_, errs := decode(t, text, &shop{})
		if len(errs) != 1 {
			t.Errorf("%.20s: %.300v", text, errs)
			continue
		}
		if got, _, _ := strings.Cut(errs[0].Error(), "\n"); got != want {
			t.Errorf("%.20s: %s", text, got)
		}
	}
}

// A large document of a usual form is far below the limits.
func TestLargeDocumentIsNotTooDeep(t *testing.T) {
	var b strings.Builder
	b.WriteString("shelf:\n")
	for n := 0; b.Len() < yamldoc.MaxBytes-100; n++ {
		fmt.Fprintf(&b, "- name: \"[{[{\" # [{[{ - - - ? ? ?\n  for: %ds\n\n", n)
	}
	b.WriteString("till: {\nnotes: {\na: b\n}\n}\n")
	var s shop
	if _, errs := decode(t, b.String(), &s); len(errs) > 0 || len(s.Shelf) < 4000 {
		t.Errorf("%d items, errors: %.300v", len(s.Shelf), errs)
	}
}
