package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// list is packages.yaml.
type list []*pack

// pack is a package whose tests are tried.
type pack struct {
	Package string `json:"package"` // within the repository, as internal/queue
	Nights  int    `json:"nights"`  // in how many nights all its files are tried
	// Floor is nil for a package that is not held yet.
	Floor    *floor   `json:"floor,omitempty"`
	Accepted []accept `json:"accepted,omitempty"`
}

// floor has the lowest results that the package may have, in percent.
type floor struct {
	Efficacy float64 `json:"efficacy"` // see verdict.efficacy
	Covered  float64 `json:"covered"`  // see verdict.coverage
	Measured string  `json:"measured"` // the date, and of how many changes
}

// accept is a change that no test has to catch.
type accept struct {
	place `json:",inline"`
	Times int    `json:"times,omitempty"` // equal lines of the function; 0: 1
	Why   string `json:"why"`
}

// place names a change without line numbers, so that it stays where lines above are added.
type place struct {
	File     string `json:"file"`     // within the package
	Function string `json:"function"` // "Queue.Put"; "" outside of functions
	Mutation string `json:"mutation"`
	Line     string `json:"line"` // trimmed; the operator that is changed is «so»
}

// Before and after the operator that is changed.
const (
	markBegin = "«"
	markEnd   = "»"
)

// bare returns the line as it is in the code.
func (p place) bare() string { return strings.NewReplacer(markBegin, "", markEnd, "").Replace(p.Line) }

func (p place) String() string {
	return fmt.Sprintf("%s %s: %s: %s", p.File, p.Function, p.Mutation, p.Line)
}

func (a accept) times() int { return max(a.Times, 1) }

func loadPackages(file string) (list, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all list
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// selected returns the package with the name, or all for "". A package that is not listed is not
// held.
func (l list) selected(name string) list {
	if name == "" {
		return l
	}
	name = path.Clean(name)
	for _, p := range l {
		if p.Package == name {
			return list{p}
		}
	}
	return list{{Package: name, Nights: 1}}
}

// check returns an error for each entry that is incomplete, or that names what the code at root
// does not have.
func (l list) check(root string) error {
	var errs []error
	for _, p := range l {
		for _, err := range p.check(root) {
			errs = append(errs, fmt.Errorf("%s: %w", p.Package, err))
		}
	}
	return errors.Join(errs...)
}

func (p *pack) check(root string) []error {
	files, _ := filepath.Glob(filepath.Join(root, p.Package, "*.go")) // the pattern is a valid one
	if len(files) == 0 {
		return []error{errors.New("there is no such package")}
	}
	var errs []error
	if p.Nights < 1 {
		errs = append(errs, errors.New("nights must be 1 or more"))
	}
	if p.Floor != nil && p.Floor.Measured == "" {
		errs = append(errs, errors.New("floor: say when it was measured, and of how many changes"))
	}
	var seen []place
	for _, a := range p.Accepted {
		err := a.check(filepath.Join(root, p.Package))
		if slices.Contains(seen, a.place) {
			err = errors.New("is there twice: use times")
		}
		seen = append(seen, a.place)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.place, err))
		}
	}
	return errs
}

func (a accept) check(dir string) error {
	if a.Why == "" {
		return errors.New("why is missing")
	}
	if strings.Count(a.Line, markBegin) != 1 || strings.Count(a.Line, markEnd) != 1 {
		return fmt.Errorf("the line must mark one operator as %sso%s", markBegin, markEnd)
	}
	s, err := readSource(filepath.Join(dir, a.File))
	if err != nil {
		return err
	}
	if n := s.count(a.Function, a.bare()); n < a.times() {
		return fmt.Errorf("the code has the line %d times, %d are accepted: remove what is gone", n, a.times())
	}
	return nil
}
