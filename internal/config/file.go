package config

import (
	"fmt"
	"os"
	"reflect"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// File is a configuration with the positions of its values in the file.
type File struct {
	*Config
	Name string // as given to Load or Parse

	doc *yamldoc.Document
}

// Line returns the line, from 1, of the value at a path such as "watch[0]"; 0 if the file does not
// have it.
func (f *File) Line(path string) int {
	line, _ := f.doc.Position(path)
	return line
}

// Conceal replaces what came from the environment in a text by ${NAME}, with which the file names
// it.
func (f *File) Conceal(text string) string { return f.doc.Conceal(text) }

// ConcealStrings applies Conceal to all strings that v, a pointer, leads to.
func (f *File) ConcealStrings(v any) { f.doc.ConcealStrings(v) }

// Check returns the errors of values that another package uses. The configuration has passed
// Validate. Errors need only Path and Message, and TextLine and TextColumn for a longer text. The
// caller adds the position in the file.
type Check func(*Config) []*yamldoc.Error

// Load reads and validates the file at path. Errors of its content are [yamldoc.Errors].
func Load(path string, checks ...Check) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(data, path, checks...)
}

// Parse reads and validates the content of a file. Name stands for the file in errors, which are
// [yamldoc.Errors]. Variables come from the environment.
func Parse(data []byte, name string, checks ...Check) (*Config, error) {
	f, err := ParseFile(data, name, checks...)
	if err != nil {
		return nil, err
	}
	return f.Config, nil
}

// ParseFile is Parse for callers that report positions.
func ParseFile(data []byte, name string, checks ...Check) (*File, error) {
	return ParseOverridden(data, name, nil, checks...)
}

// Keys returns the paths of all keys. An index of a list is written [].
func Keys() []string { return yamldoc.Paths(reflect.TypeFor[Config](), general) }

// renamed returns the former names of keys.
func renamed() map[string]string { return map[string]string{"relay": "relays"} }

// Empty is the content of a file with the default of every key.
const Empty = "apiVersion: " + APIVersion + "\n"

// ParseOverridden is ParseFile with keys that override those of the file. They are validated as
// well.
func ParseOverridden(data []byte, name string, set []yamldoc.Override, checks ...Check) (*File, error) {
	c := Default()
	doc, unread := yamldoc.Decode(data, c, &yamldoc.Options{
		Name:    name,
		Lookup:  os.LookupEnv,
		Alias:   general,
		Renamed: renamed(),
		Set:     set,
	})
	if !doc.Has("apiVersion") && !unread.Covers("apiVersion") {
		unread = append(unread, doc.Locate(&yamldoc.Error{
			Path:    "apiVersion",
			Message: "is missing; begin the file with apiVersion: " + APIVersion,
		}))
	}
	c.settle(doc.Has)
	errs := unread
	for _, e := range c.problems() {
		// A value that could not be decoded has its default or is empty: a second error about it
		// would mislead.
		if !unread.Covers(e.Path) {
			errs = append(errs, doc.Locate(e))
		}
	}
	if len(errs) == 0 {
		for _, check := range checks {
			for _, e := range check(c) {
				errs = append(errs, doc.Locate(e))
			}
		}
	}
	if len(errs) > 0 {
		errs.Sort()
		return nil, errs.First()
	}
	return &File{Config: c, Name: name, doc: doc}, nil
}
