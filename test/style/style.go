package style

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"strings"
	"unicode/utf8"
)

const (
	// commentColumns and codeColumns are the greatest widths of lines. A tab is four columns wide.
	commentColumns = 100
	codeColumns    = 120
	tabColumns     = 4
	// mostValues is how many values one statement may assign.
	mostValues = 2
	// mostFields is how many fields of a struct literal may share a line, outside of tests.
	mostFields = 3
	// longText is the width from which a string may make its line wider: it is not broken for that.
	longText = 40
)

// Check returns the faults of a Go file, each as "path:line: what is wrong". Generated files have
// none. A line that a raw string spans has none either, and in a test no line of a table.
func Check(path string, src []byte) (faults []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	c := checker{path: path, fset: fset, lines: strings.Split(string(src), "\n")}
	c.checkWidths(src)
	ast.Inspect(file, c.checkNode)
	return c.faults, nil
}

type checker struct {
	path   string
	fset   *token.FileSet
	lines  []string
	elses  map[*ast.IfStmt]bool // that follow an else
	faults []string
}

func (c *checker) report(line int, format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf("%s:%d: %s", c.path, line, fmt.Sprintf(format, args...)))
}

// checkWidths compares the width of each line with its limit.
func (c *checker) checkWidths(src []byte) {
	excused := longTexts(src)
	for i, line := range c.lines {
		width := columns(line)
		text, isComment := strings.CutPrefix(strings.TrimSpace(line), "//")
		switch {
		case isComment && width > commentColumns && !isPreformatted(text):
			c.report(i+1, "a comment of %d columns, more than %d", width, commentColumns)
		case !isComment && width > codeColumns && !excused[i+1] && !c.isOfTable(line):
			c.report(i+1, "code of %d columns, more than %d", width, codeColumns)
		}
	}
}

// isPreformatted reports whether a comment is a directive, or a line that go doc prints as it is.
func isPreformatted(text string) bool {
	return !strings.HasPrefix(text, " ") || strings.HasPrefix(text, "  ")
}

// isOfTable reports whether a line is an entry of a table of tests.
func (c *checker) isOfTable(line string) bool {
	return strings.HasSuffix(c.path, "_test.go") && strings.ContainsAny(strings.TrimSpace(line)[:1], "{\"`")
}

// longTexts returns the lines that raw strings span, and those that have a long string.
func longTexts(src []byte) map[int]bool {
	out := map[int]bool{}
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok != token.STRING {
			continue
		}
		first := file.Line(pos)
		last := first + strings.Count(text, "\n")
		if last == first && utf8.RuneCountInString(text) < longText {
			continue
		}
		for line := first; line <= last; line++ {
			out[line] = true
		}
	}
}

// columns returns the width of a line.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

func (c *checker) checkNode(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if len(n.Rhs) > mostValues {
			c.report(c.fset.Position(n.Pos()).Line, "%d values are assigned in one statement, more than %d",
				len(n.Rhs), mostValues)
		}
	case *ast.CompositeLit:
		c.checkFields(n)
	case *ast.IfStmt:
		if next, ok := n.Else.(*ast.IfStmt); ok {
			if c.elses == nil {
				c.elses = map[*ast.IfStmt]bool{}
			}
			c.elses[next] = true
		}
		if !c.elses[n] && mutates(n.Init) {
			c.report(c.fset.Position(n.Pos()).Line, "the header of an if statement changes something other than err")
		}
	}
	return true
}

// checkFields reports a struct literal of more than mostFields fields that has several in a line.
// A row of a table, whose type is that of the table, may have them.
func (c *checker) checkFields(n *ast.CompositeLit) {
	if strings.HasSuffix(c.path, "_test.go") || n.Type == nil || len(n.Elts) <= mostFields {
		return
	}
	switch n.Type.(type) {
	case *ast.MapType, *ast.ArrayType:
		return
	}
	last := 0
	for _, e := range n.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		if _, isField := field.Key.(*ast.Ident); !isField { // a named map
			return
		}
		line := c.fset.Position(e.Pos()).Line
		if line == last {
			c.report(line, "several of %d fields are in one line, more than %d need a line each", len(n.Elts), mostFields)
			return
		}
		last = line
	}
}

// mutates reports whether a statement changes an existing value other than err.
func mutates(s ast.Stmt) bool {
	a, ok := s.(*ast.AssignStmt)
	if !ok {
		return s != nil
	}
	if a.Tok == token.DEFINE {
		return false
	}
	for _, target := range a.Lhs {
		name, ok := target.(*ast.Ident)
		if !ok || name.Name != "err" && name.Name != "_" {
			return true
		}
	}
	return false
}
