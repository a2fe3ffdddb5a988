package yamldoc

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/kubecdc/kubecdc/internal/wording"
)

// keys returns the keys of a mapping, in their order. A field of a struct with the key "-" has
// none.
func keys(t reflect.Type) []string {
	if v, ok := reflect.Zero(t).Interface().(Variants); ok {
		return v.Keys()
	}
	var names []string
	for f := range t.Fields() {
		if name := keyOf(f); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// fieldOf returns the field of a struct with a key.
func fieldOf(v reflect.Value, name string) reflect.Value {
	return v.FieldByNameFunc(func(field string) bool {
		f, _ := v.Type().FieldByName(field)
		return keyOf(f) == name
	})
}

// typeOf returns the type of the value of a key.
func typeOf(t reflect.Type, name string) reflect.Type {
	if v, ok := reflect.Zero(t).Interface().(Variants); ok {
		return reflect.TypeOf(v.New(name)).Elem()
	}
	return fieldOf(reflect.Zero(t), name).Type()
}

// keysOf returns " with level, format", or nothing if the mapping has no keys or too many to name.
func keysOf(t reflect.Type) string {
	if names := keys(t); len(names) > 0 && len(names) < 10 {
		return " with " + strings.Join(names, ", ")
	}
	return ""
}

// unknownField returns the error about an unknown key, with its present name or the key that was
// probably meant.
func (d *decoder) unknownField(name, parent string, known []string) string {
	parent = Generic(parent)
	if now, ok := d.options.Renamed[d.options.Alias(join(parent, name))]; ok {
		return "renamed to " + now
	}
	var elsewhere, below []string
	if d.paths == nil {
		d.paths = Paths(d.root, d.options.Alias)
	}
	for _, p := range d.paths {
		i := strings.LastIndexByte(p, '.')
		if key := p[i+1:]; key == name && d.options.Alias(p) == p {
			elsewhere = append(elsewhere, p)
			if strings.HasPrefix(p, parent+".") {
				below = append(below, p)
			}
		}
	}
	if len(below) == 1 {
		elsewhere = below
	}
	switch likely := wording.Nearest(name, known); {
	case likely != "":
		return fmt.Sprintf("unknown field, did you mean %s?", likely)
	case len(elsewhere) == 1 && elsewhere[0] == name:
		return fmt.Sprintf("unknown field here, %s is a key of the whole file: write it at the beginning of a line",
			name)
	case len(elsewhere) == 1:
		return fmt.Sprintf("unknown field, did you mean %s?", elsewhere[0])
	case len(known) == 0:
		return "unknown field, none is allowed here"
	}
	return "unknown field, known here: " + strings.Join(known, ", ")
}

// Generic returns a path with [] in place of each index of a list.
func Generic(path string) string { return indexes.ReplaceAllString(path, "[]") }

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

// Paths returns the generic paths of all keys of a struct. It does not descend into a path that has
// an alias; see Options.
func Paths(root reflect.Type, alias func(path string) string) []string {
	var paths []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		switch {
		case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		case alias(path) != path:
		case t.Kind() == reflect.Pointer:
			walk(t.Elem(), path)
		case t.Kind() == reflect.Slice:
			walk(t.Elem(), path+"[]")
		case t.Kind() == reflect.Struct, t.Implements(reflect.TypeFor[Variants]()):
			for _, name := range keys(t) {
				at := strings.TrimPrefix(path+"."+name, ".")
				paths = append(paths, at)
				walk(typeOf(t, name), at)
			}
		}
	}
	walk(root, "")
	return paths
}
