package config_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// entry is one key of the file. Its meaning comes from the comments of configs/kubecdc.yaml, and
// all the rest from the Go types. The JSON Schema and docs/reference/configuration.md are generated
// from both.
type entry struct {
	path    string // "watch[].resources"
	key     string // "resources"
	prose   string
	example string // of a key that is commented out in the file

	typ   reflect.Type
	value any // the default, as in JSON; nil: none
}

// parent returns the path of the mapping that contains the key.
func (e *entry) parent() string {
	return strings.TrimSuffix(strings.TrimSuffix(e.path, e.key), ".")
}

var (
	keyLine       = regexp.MustCompile(`^( *)(- )?([a-zA-Z]+):(?: (.*))?$`)
	commentedLine = regexp.MustCompile(`^( *)# ( *)(- )?([a-zA-Z]+):(?: (.*?))?$`)
	commentLine   = regexp.MustCompile(`^ *# ?(?: +# )?(.*)$`) // also within commented-out keys
)

// prose reads keys and their descriptions from the default file, in its order. The first comment is
// about the file.
func prose(t *testing.T) (file string, entries []entry) {
	t.Helper()
	known := config.Keys()
	type level struct {
		indent int
		path   string
	}
	levels := []level{{-1, ""}}
	var comment []string
	seen := map[string]bool{}
	add := func(indent int, item bool, key, example string) {
		if item {
			indent += 2
		}
		for levels[len(levels)-1].indent >= indent {
			levels = levels[:len(levels)-1]
		}
		parent := levels[len(levels)-1].path
		if item {
			parent += "[]"
			levels = append(levels, level{indent - 1, parent})
		}
		e := entry{
			path:    strings.TrimPrefix(parent+"."+key, "."),
			key:     key,
			prose:   strings.Join(comment, " "),
			example: example,
		}
		if seen[e.path] {
			t.Errorf("%s: %s stands there twice", defaultFile, e.path)
		}
		seen[e.path] = true
		entries = append(entries, e)
		levels = append(levels, level{indent, e.path})
		comment = nil
	}
	within := func(indent int) string {
		i := len(levels) - 1
		for levels[i].indent >= indent {
			i--
		}
		return levels[i].path
	}
	for line := range strings.Lines(readDefault(t)) {
		line = strings.TrimSuffix(line, "\n")
		if m := keyLine.FindStringSubmatch(line); m != nil {
			add(len(m[1]), m[2] != "", m[3], "")
			continue
		}
		if m := commentedLine.FindStringSubmatch(line); m != nil {
			indent := len(m[1]) + len(m[2])
			parent := within(indent)
			if m[3] != "" {
				parent += "[]"
			}
			if slices.Contains(known, strings.TrimPrefix(parent+"."+m[4], ".")) {
				add(indent, m[3] != "", m[4], m[5])
				continue
			}
		}
		if m := commentLine.FindStringSubmatch(line); m != nil {
			comment = append(comment, m[1])
			continue
		}
		if line == "" && len(entries) == 0 {
			file, comment = strings.Join(comment, "\n"), nil
		}
	}
	return file, entries
}

// reference returns every key of the file.
func reference(t *testing.T) []entry {
	t.Helper()
	_, entries := prose(t)
	types := map[string]reflect.Type{}
	values := map[string]any{}
	var walk func(typ reflect.Type, v reflect.Value, path string)
	walk = func(typ reflect.Type, v reflect.Value, path string) {
		types[path] = typ
		if v.IsValid() &&
			(typ.Kind() != reflect.Pointer && typ.Kind() != reflect.Struct && typ.Kind() != reflect.Map ||
				isText(typ)) {
			values[path] = asJSON(v)
		}
		switch {
		case isText(typ):
		case typ.Kind() == reflect.Pointer:
			if v.IsValid() && v.IsNil() {
				if isSwitch(typ.Elem()) {
					values[path] = false
				}
				v = reflect.New(typ.Elem())
				config.SetDefaults(v.Interface())
			}
			walk(typ.Elem(), v.Elem(), path)
		case typ.Kind() == reflect.Slice:
			item := reflect.New(typ.Elem())
			config.SetDefaults(item.Interface())
			walk(typ.Elem(), item.Elem(), path+"[]")
		case isVariants(typ):
			all := reflect.Zero(typ).Interface().(yamldoc.Variants)
			for _, name := range all.Keys() {
				value := reflect.ValueOf(all.New(name)).Elem()
				if v.IsValid() && v.MapIndex(reflect.ValueOf(name)).IsValid() {
					value = reflect.Indirect(reflect.ValueOf(v.MapIndex(reflect.ValueOf(name)).Interface()))
				}
				walk(value.Type(), value, path+"."+name)
			}
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ","); name != "-" {
					walk(typ.Field(i).Type, v.Field(i), strings.TrimPrefix(path+"."+name, "."))
				}
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), reflect.ValueOf(*config.Default()), "")
	for _, path := range required() {
		delete(values, path)
	}
	for path, v := range values { // an empty name is no choice
		if v == "" && isChoice(path) {
			delete(values, path)
		}
	}
	var found []string
	for i := range entries {
		e := &entries[i]
		found = append(found, e.path)
		e.typ, e.value = types[e.path], values[e.path]
		// Keys with a default are not commented out, or comparing the file with Default would be
		// meaningless. A choice is an exception.
		if e.example != "" && !isChoice(e.path) {
			t.Errorf("%s has %s in a comment only", defaultFile, e.path)
		}
		if e.prose == "" {
			t.Errorf("%s does not say what %s is for", defaultFile, e.path)
		}
		values := choices(e)
		if values == nil && e.typ != nil && e.typ.Kind() == reflect.Slice {
			values = choices(&entry{typ: e.typ.Elem()})
		}
		for _, v := range values {
			if !strings.Contains(e.prose, v) {
				t.Errorf("%s does not say what the value %s of %s means", defaultFile, v, e.path)
			}
		}
	}
	for _, path := range config.Keys() {
		if !slices.Contains(found, path) {
			t.Errorf("%s does not have %s", defaultFile, path)
		}
	}
	return entries
}

// isChoice reports whether a key may be missing by default, together with its mapping.
func isChoice(path string) bool {
	root, rest, _ := strings.Cut(path, ".")
	name, _, _ := strings.Cut(rest, ".")
	switch _, chosen := config.Default().Bus[name]; {
	case root == "bus" && rest != "" && !chosen:
		return true
	case root == "deadLetter" && rest != "":
		return config.Default().DeadLetter[name] == ""
	}
	return choice.MatchString(path)
}

var choice = regexp.MustCompile(
	`^(watch\[\]\.onError|bus\.nats\.(auth|reader|tls)|checkpoint\.|claimCheck\.(directory|http)|tracing\.(headersFile|tls)|relays\[\]\.)`)

func isVariants(typ reflect.Type) bool { return typ.Implements(reflect.TypeFor[yamldoc.Variants]()) }

func isSwitch(typ reflect.Type) bool {
	return reflect.PointerTo(typ).Implements(reflect.TypeFor[yamldoc.Switch]())
}

// required returns the keys that must be set if their mapping is.
func required() []string {
	var paths []string
	for path, key := range config.KeyFacts() {
		if key.Required {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// choices returns the values of a key that accepts only a few.
func choices(e *entry) []string {
	if e.typ == nil {
		return nil
	}
	if enum, ok := reflect.Zero(e.typ).Interface().(yamldoc.Enum); ok {
		return enum.Values()
	}
	return nil
}

func isText(typ reflect.Type) bool {
	return reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// asJSON returns a default as in JSON: a value that is read from text is text, and a list is never
// null.
func asJSON(v reflect.Value) any {
	if text, ok := v.Interface().(encoding.TextMarshaler); ok {
		s, err := text.MarshalText()
		if err != nil {
			panic(err)
		}
		if b, ok := v.Interface().(yamldoc.Bytes); ok && b == 0 {
			return 0
		}
		return string(s)
	}
	if v.Kind() == reflect.Slice {
		list := []any{}
		for i := range v.Len() {
			list = append(list, asJSON(v.Index(i)))
		}
		return list
	}
	if v.Kind() == reflect.Struct { // a rule; skip its empty fields
		m := map[string]any{}
		for i := range v.NumField() {
			if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); !v.Field(i).IsZero() {
				m[name] = asJSON(v.Field(i))
			}
		}
		return m
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return v.Interface()
}

// inWords returns a value as a user would write it in the file.
func inWords(t *testing.T, v any) string {
	t.Helper()
	if s, ok := v.(string); ok && s != "" {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`","`, `", "`, `":`, `": `, `],"`, `], "`).Replace(string(data))
}

// typeInWords returns the type of a value in words for users.
func typeInWords(typ reflect.Type) string {
	switch {
	case typ == nil:
		return ""
	case typ == reflect.TypeFor[yamldoc.Duration]():
		return "duration"
	case typ == reflect.TypeFor[yamldoc.Bytes]():
		return "size"
	case typ == reflect.TypeFor[yamldoc.Ratio]():
		return "number from 0 to 1"
	case typ == reflect.TypeFor[config.ResourcePattern]():
		return "resource"
	case isSwitch(typ):
		return "true, false or mapping"
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return typeInWords(typ.Elem())
	case reflect.Slice:
		return "list of " + typeInWords(typ.Elem()) + "s"
	case reflect.Struct, reflect.Map:
		return "mapping"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "number"
	case reflect.String:
		return "text"
	default:
		return fmt.Sprint(typ)
	}
}
