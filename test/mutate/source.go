package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"strings"
)

// source is a file of Go code.
type source struct {
	lines     []string
	functions []function
}

// function is a function with its first and last line, from 1.
type function struct {
	name        string
	first, last int
}

func readSource(file string) (*source, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{lines: strings.Split(string(data), "\n")}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		s.functions = append(s.functions, function{
			name:  nameOf(f),
			first: set.Position(f.Pos()).Line,
			last:  set.Position(f.End()).Line,
		})
	}
	return s, nil
}

// nameOf returns the name of a function as "Put", or of a method as "Queue.Put".
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// functionAt returns the name of the function with the line, or "".
func (s *source) functionAt(line int) string {
	for _, f := range s.functions {
		if f.first <= line && line <= f.last {
			return f.name
		}
	}
	return ""
}

// count returns how many lines of the function are text, without the space around them.
func (s *source) count(function, text string) int {
	n := 0
	for i, line := range s.lines {
		if strings.TrimSpace(line) == text && s.functionAt(i+1) == function {
			n++
		}
	}
	return n
}

// placeOf names a change of the file.
func (s *source) placeOf(file string, m mutation) (place, error) {
	if m.Line < 1 || m.Line > len(s.lines) || m.Column < 1 || m.Column > len(s.lines[m.Line-1]) {
		return place{}, fmt.Errorf("%s has no line %d with column %d", file, m.Line, m.Column)
	}
	line := s.lines[m.Line-1]
	before := line[:m.Column-1]
	from := line[m.Column-1:]
	width := len(firstToken(from))
	return place{
		File:     file,
		Function: s.functionAt(m.Line),
		Mutation: m.Type,
		Line:     strings.TrimSpace(before + markBegin + from[:width] + markEnd + from[width:]),
	}, nil
}

// firstToken returns the operator or keyword with which text begins.
func firstToken(text string) string {
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile("", -1, len(text)), []byte(text), nil, 0)
	_, tok, _ := s.Scan()
	return tok.String()
}
