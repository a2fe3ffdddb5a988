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

// helpTexts returns the texts that a command shows of itself: descriptions, and what each flag is
// for.
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

var (
	errorFunction = regexp.MustCompile(`^(?:New|Errorf|Sprintf)$`)
	logMethod     = regexp.MustCompile(`^(?:Debug|Info|Warn|Error)(?:Context)?$`)
	clause        = regexp.MustCompile(`(?:^|[:;] )[a-z]?`) // each counts as a sentence: "operation: cause; remedy"
	verb          = regexp.MustCompile(`%[-+# 0]*[\d.]*[a-zA-Z]`)
)

// messages returns the texts of errors and of log lines.
func messages(name string, text []byte) ([]block, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var blocks []block
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at, of := 0, ""
		if id, ok := fun.X.(*ast.Ident); ok {
			of = id.Name
		}
		switch {
		case errorFunction.MatchString(fun.Sel.Name) && (of == "errors" || of == "fmt"):
		case of == "field": // an error of a configuration key
			at = len(call.Args) - 1
		case logMethod.MatchString(fun.Sel.Name):
			if strings.HasSuffix(fun.Sel.Name, "Context") {
				at = 1
			}
		default:
			return true
		}
		if at < len(call.Args) {
			if _, ok := call.Args[at].(*ast.Ident); ok { // a variable
				return true
			}
			lines := literal(fset, call.Args[at])
			for i, l := range lines {
				lines[i].text = clause.ReplaceAllStringFunc(verb.ReplaceAllString(l.text, "CODE"),
					func(s string) string {
						return strings.ToUpper(strings.Replace(s, ":", ";", 1))
					})
			}
			for _, b := range paragraphs(lines, "  ") {
				b.cell = true
				blocks = append(blocks, b)
			}
		}
		return true
	})
	return blocks, nil
}

// literal returns the lines of a string that is put together from literals. Another operand counts
// as one word.
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
