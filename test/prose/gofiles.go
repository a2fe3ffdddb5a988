package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// comments returns the comments of a Go file. Directives and indented examples are left out.
func comments(name string, text []byte) ([]block, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var blocks []block
	for _, group := range f.Comments {
		var lines []line
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "/*") || directive.MatchString(c.Text) {
				continue
			}
			lines = append(lines, line{fset.Position(c.Pos()).Line, strings.TrimPrefix(c.Text, "//")})
		}
		blocks = append(blocks, paragraphs(lines, "  ", "\t", " \t")...)
	}
	return blocks, nil
}

var directive = regexp.MustCompile(`^//(?:[a-z]+:|nolint)`)

// helpTexts returns the texts that a command shows of itself: descriptions, and what each flag is for.
func helpTexts(name string, text []byte) ([]block, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var blocks []block
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Short" || key.Name == "Long") {
				blocks = append(blocks, paragraphs(literal(fset, n.Value), "  ")...)
			}
		case *ast.CallExpr:
			if fun, ok := n.Fun.(*ast.SelectorExpr); ok && flagMethod.MatchString(fun.Sel.Name) && len(n.Args) >= 3 {
				blocks = append(blocks, paragraphs(literal(fset, n.Args[len(n.Args)-1]))...)
			}
		}
		return true
	})
	return blocks, nil
}

var flagMethod = regexp.MustCompile(`^(?:String|StringSlice|StringArray|Bool|Int|Float64|Duration|Count)?VarP?$`)

// literal returns the lines of a string that is put together from literals. Another operand counts as one word.
func literal(fset *token.FileSet, e ast.Expr) []line {
	lines := []line{{fset.Position(e.Pos()).Line, ""}}
	var add func(ast.Expr)
	add = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			add(e.X)
			add(e.Y)
		case *ast.BasicLit:
			value, err := strconv.Unquote(e.Value)
			if err != nil {
				value = e.Value
			}
			number := fset.Position(e.Pos()).Line
			for i, text := range strings.Split(value, "\n") {
				if i > 0 {
					lines = append(lines, line{number, ""})
				}
				if e.Value[0] == '`' {
					lines[len(lines)-1].number = number + i
				}
				lines[len(lines)-1].text += text
			}
		default:
			lines[len(lines)-1].text += "CODE"
		}
	}
	add(e)
	return lines
}

// paragraphs splits lines at empty ones, and leaves out those that begin with one of the prefixes.
func paragraphs(lines []line, examples ...string) []block {
	var blocks []block
	var open block
	end := func() {
		if len(open.lines) > 0 {
			blocks = append(blocks, open)
		}
		open = block{}
	}
	for _, l := range lines {
		example := false
		for _, prefix := range examples {
			example = example || strings.HasPrefix(l.text, prefix)
		}
		if example || strings.TrimSpace(l.text) == "" {
			end()
			continue
		}
		if listItem.MatchString(l.text) {
			end()
		}
		open.lines = append(open.lines, line{l.number, strings.TrimSpace(l.text)})
	}
	end()
	return blocks
}
