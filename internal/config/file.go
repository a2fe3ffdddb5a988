package config

import (
	"fmt"
	"os"
)

// File is a configuration and where in its file everything stands.
type File struct {
	*Config
	Name string // as given to Load or Parse

	places map[string]place
}

// Line is the line, from 1, on which the value of a path such as "watch[0]" stands; 0 where the file does not have it.
func (f *File) Line(path string) int { return f.places[path].line }

// Check is what another package knows to be wrong with values that it will be given. It runs on what has passed Validate;
// Path and Message of what it returns are enough (TextLine and TextColumn point into a longer text), the place in the file is
// found.
type Check func(*Config) []*Error

// maxFileBytes is far above any configuration. It bounds the time and the depth of recursion that a YAML parser can be
// made to spend on nesting.
const maxFileBytes = 256 << 10

// Load reads and validates the file at path. What is wrong with its content is returned as [Errors].
func Load(path string, checks ...Check) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(data, path, checks...)
}

// Parse reads and validates the content of a file. Name stands for the file in errors, which are [Errors]. Variables
// come from the environment.
func Parse(data []byte, name string, checks ...Check) (*Config, error) {
	f, err := ParseFile(data, name, checks...)
	if err != nil {
		return nil, err
	}
	return f.Config, nil
}

// ParseFile is Parse for callers that want to say where something stands.
func ParseFile(data []byte, name string, checks ...Check) (*File, error) {
	c := Default()
	d := newDecoder(data, name, os.LookupEnv)
	d.decode(c)
	c.settle(func(path string) bool {
		_, ok := d.places[path]
		return ok
	})
	errs := d.errs
	for _, e := range c.problems() {
		// What could not be read was left at its default or empty: a second complaint about it would mislead.
		if !d.errs.covers(e.Path) {
			errs = append(errs, d.locate(e))
		}
	}
	if len(errs) == 0 {
		for _, check := range checks {
			for _, e := range check(c) {
				errs = append(errs, d.locate(e))
			}
		}
	}
	if len(errs) > 0 {
		errs.sort()
		return nil, errs
	}
	return &File{Config: c, Name: name, places: d.places}, nil
}
