package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// keys are the keys of a mapping that is read into a struct, in the order of its fields.
func keys(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		names = append(names, name)
	}
	return names
}

// keysOf is " with level, format", and nothing where that would be none or a page.
func keysOf(t reflect.Type) string {
	if names := keys(t); len(names) > 0 && len(names) < 10 {
		return " with " + strings.Join(names, ", ")
	}
	return ""
}

// unknownField says what may have been meant by a key that is not known at its place.
func unknownField(name, parent string, known []string) string {
	parent = indexes.ReplaceAllString(parent, "[]")
	var elsewhere, below []string
	for _, p := range allPaths() {
		i := strings.LastIndexByte(p, '.')
		if key := p[i+1:]; key == name && general(p) == p {
			elsewhere = append(elsewhere, p)
			if strings.HasPrefix(p, parent+".") {
				below = append(below, p)
			}
		}
	}
	if len(below) == 1 {
		elsewhere = below
	}
	switch likely := nearest(name, known); {
	case likely != "":
		return fmt.Sprintf("unknown field, did you mean %s?", likely)
	case len(elsewhere) == 1 && elsewhere[0] == name:
		return fmt.Sprintf("unknown field here, %s is a key of the whole file: write it at the beginning of a line", name)
	case len(elsewhere) == 1:
		return fmt.Sprintf("unknown field, did you mean %s?", elsewhere[0])
	case len(known) == 0:
		return "unknown field, there are none here"
	}
	return "unknown field, known here: " + strings.Join(known, ", ")
}

// allPaths are the paths of all keys. An index of a list is written [].
func allPaths() []string {
	var paths []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		switch {
		case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		case general(path) != path: // it has the keys of another
		case t.Kind() == reflect.Pointer:
			walk(t.Elem(), path)
		case t.Kind() == reflect.Slice:
			walk(t.Elem(), path+"[]")
		case t.Kind() == reflect.Struct:
			for i, name := range keys(t) {
				at := strings.TrimPrefix(path+"."+name, ".")
				paths = append(paths, at)
				walk(t.Field(i).Type, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return paths
}

// nearest is the one of names that was probably meant by word; "" where none is near enough.
func nearest(word string, names []string) string {
	best, least := "", 1+min(3, (len(word)+1)/3)
	for _, name := range names {
		d := distance(strings.ToLower(word), strings.ToLower(name))
		if len(name) > 2 && strings.HasPrefix(word, name) {
			d = min(d, 2) // "logging" is log
		}
		if word != "" && d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of letters to insert, leave out, change or swap with their neighbour (the optimal string
// alignment distance).
func distance(a, b string) int {
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		older, old, row = old, row, older
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := old[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(old[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
