package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// verdict compares what survived with the package's list.
type verdict struct {
	pack  *pack
	found report // all changes of the package
	tried report // those of the part

	survivors []place // of the part, not accepted
	accepted  int     // of the whole package
	caught    []place // accepted, but tried and caught: the list may shrink
	stopped   []place // tests ran out of time
}

// judge returns the verdict on a part of the package.
func (p *pack) judge(root string, found, tried report) (*verdict, error) {
	v := &verdict{pack: p, found: found, tried: tried}
	left := map[place]int{}
	for _, a := range p.Accepted {
		left[a.place] = a.times()
		v.accepted += a.times()
	}
	for _, f := range tried.Files {
		s, err := readSource(filepath.Join(root, p.Package, f.Name))
		if err != nil {
			return nil, err
		}
		for _, m := range f.Mutations {
			at, err := s.placeOf(f.Name, m)
			if err != nil {
				return nil, err
			}
			switch {
			case m.Status == timedOut:
				v.stopped = append(v.stopped, at) // it counts as caught: the tests do not end
			case m.Status != lived:
			case left[at] > 0:
				left[at]--
			default:
				v.survivors = append(v.survivors, at)
			}
		}
	}
	for _, a := range p.Accepted {
		if left[a.place] > 0 && tried.has(a.File) {
			v.caught = append(v.caught, a.place)
		}
	}
	return v, nil
}

// has reports whether changes of the file were tried.
func (r report) has(file string) bool {
	for _, f := range r.Files {
		if f.Name == file {
			return true
		}
	}
	return false
}

// efficacy returns how many percent of the covered changes of the whole package are caught, as far
// as is known. Those that are accepted, and those that survived in this part, are not. Only
// the changes that were tried count in a package that is not held.
func (v *verdict) efficacy() float64 {
	if v.pack.Floor == nil {
		return percent(v.triedCount()-v.tried.count(lived), v.triedCount())
	}
	covered := v.found.count(runnable)
	return percent(covered-v.accepted-len(v.survivors), covered)
}

// coverage returns how many percent of the changes of the whole package are in lines that its
// tests run.
func (v *verdict) coverage() float64 {
	covered := v.found.count(runnable)
	return percent(covered, covered+v.found.count(notCovered))
}

func percent(some, all int) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(some) / float64(all)
}

// write writes the verdict as text.
func (v *verdict) write(w io.Writer) {
	for _, at := range v.stopped {
		fmt.Fprintf(w, "  tests ran out of time: %s\n", at)
	}
	for _, at := range v.caught {
		fmt.Fprintf(w, "  accepted, but was caught this time: %s\n", at)
	}
	if len(v.survivors) > 0 {
		fmt.Fprintf(w, "  survived, and needs a test or a reason in packages.yaml:\n%s", entries(v.survivors))
	}
	fmt.Fprintf(w, "%s: tried %d: %d survived that are not accepted, %d ran out of time, %d did not build\n",
		v.pack.Package, v.triedCount(), len(v.survivors), len(v.stopped), v.tried.count(notViable))
	all := v.found.count(runnable) + v.found.count(notCovered)
	fmt.Fprintf(w, "%s: efficacy %.1f %%, covered %.1f %% of %d; %s\n",
		v.pack.Package, v.efficacy(), v.coverage(), all, v.pack.floorText())
}

func (p *pack) floorText() string {
	if p.Floor == nil {
		return "not held yet"
	}
	return fmt.Sprintf("floor %g %%, %g %%", p.Floor.Efficacy, p.Floor.Covered)
}

// triedCount returns how many changes of the part were tried.
func (v *verdict) triedCount() int {
	return v.tried.count(killed) + v.tried.count(lived) + v.tried.count(timedOut) + v.tried.count(notViable)
}

// entries returns places as entries of packages.yaml.
func entries(places []place) string {
	all := make([]accept, 0, len(places))
	for _, at := range places {
		all = append(all, accept{place: at})
	}
	data, err := yaml.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return indent(string(data))
}

// err says how the package falls short of its list.
func (v *verdict) err() error {
	// On a machine that is too slow, everything runs out of time, and nothing is known.
	if tried := v.triedCount(); len(v.stopped)*4 > tried {
		return fmt.Errorf("tests ran out of time for %d of %d changes: the machine is too slow", len(v.stopped), tried)
	}
	f := v.pack.Floor
	if f == nil {
		return nil
	}
	var errs []error
	if len(v.survivors) > 0 {
		errs = append(errs, fmt.Errorf("%d changes survived that are not accepted", len(v.survivors)))
	}
	if e := v.efficacy(); e < f.Efficacy {
		errs = append(errs, fmt.Errorf("the efficacy is %.1f %%, below the floor of %g %%", e, f.Efficacy))
	}
	if c := v.coverage(); c < f.Covered {
		errs = append(errs, fmt.Errorf("tests run %.1f %% of the changes, below the floor of %g %%", c, f.Covered))
	}
	return errors.Join(errs...)
}

func indent(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString("  " + line)
	}
	return out.String()
}
