package style

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Word is a word of the glossary that means one thing in the code.
type Word struct {
	Text string
	// Packages are those whose exported names may have the word: "pkg/consume".
	Packages []string
}

// glossaryHeading begins the part of the glossary that ParseWords reads.
const glossaryHeading = "## The words of the code\n"

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	nameWord = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
)

// ParseWords returns the words of the glossary's table about the code.
func ParseWords(glossary string) (words []Word, err error) {
	_, part, ok := strings.Cut(glossary, glossaryHeading)
	if !ok {
		return nil, errors.New("the glossary has no part about the code")
	}
	for line := range strings.Lines(part) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.Contains(line, "---") || strings.TrimSpace(cells[4]) == "packages" {
			continue
		}
		w := Word{Text: strings.TrimSpace(cells[1])}
		for _, m := range quoted.FindAllStringSubmatch(cells[4], -1) {
			w.Packages = append(w.Packages, m[1])
		}
		if len(w.Packages) == 0 {
			return nil, fmt.Errorf("the word %s has no package", w.Text)
		}
		words = append(words, w)
	}
	if len(words) == 0 {
		return nil, errors.New("the glossary's part about the code has no table")
	}
	return words, nil
}

// IsIn reports whether the word, or its plural, is among the words of a name: "LastRecords" has
// "record", and "Resource" does not have "source".
func (w *Word) IsIn(name string) bool {
	forms := []string{w.Text, w.Text + "s"}
	if stem, ok := strings.CutSuffix(w.Text, "y"); ok {
		forms = append(forms, stem+"ies")
	}
	parts := nameWord.FindAllString(name, -1)
	for from := range parts {
		for to := from + 1; to <= len(parts); to++ {
			if slices.Contains(forms, strings.ToLower(strings.Join(parts[from:to], ""))) {
				return true
			}
		}
	}
	return false
}

// Foreign returns the exported names of a Go file, and the name of its package, that have a word
// outside the packages of the word. Each is as "history.Record". Methods and fields are not
// checked: they speak of their type.
func Foreign(words []Word, file string, src []byte) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	dir := path.Dir(file)
	for k := range words {
		w := &words[k]
		if slices.Contains(w.Packages, dir) {
			continue
		}
		if w.IsIn(path.Base(dir)) {
			names = append(names, "package "+path.Base(dir))
		}
		for _, name := range exported(parsed) {
			if w.IsIn(name) {
				names = append(names, path.Base(dir)+"."+name)
			}
		}
	}
	return names, nil
}

// exported returns the exported names of a file that are not methods or fields.
func exported(file *ast.File) (names []string) {
	note := func(name *ast.Ident) {
		if name.IsExported() {
			names = append(names, name.Name)
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				note(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					note(spec.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						note(name)
					}
				}
			}
		}
	}
	return names
}
