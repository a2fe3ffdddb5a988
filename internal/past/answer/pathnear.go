package answer

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/wording"
)

const (
	maxPaths = 5000 // of an object that are compared with a wrong one
	maxNear  = 3    // that are named
)

// near returns the paths of values in objects that are similar to the path, the best first.
func (p Path) near(objects []json.RawMessage) []string {
	l := lister{seen: map[string]bool{}}
	for _, object := range objects {
		var value any
		if json.Unmarshal(object, &value) == nil {
			l.list(value, nil)
		}
	}
	wanted := plainPath(p)
	var ends, similar []string
	plain := map[string]string{} // the paths, by their plain text
	for _, known := range l.paths {
		text := plainPath(known)
		if strings.HasPrefix(wanted, text+".") { // what the path leads through
			continue
		}
		if _, isKnown := plain[text]; !isKnown {
			plain[text] = known.String()
		}
		if strings.HasSuffix("."+text, "."+wanted) {
			ends = append(ends, known.String())
		}
	}
	slices.SortStableFunc(ends, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	for range maxNear {
		best := wording.Nearest(wanted, slices.Sorted(maps.Keys(plain)))
		if best == "" {
			break
		}
		similar = append(similar, plain[best])
		delete(plain, best)
	}
	out := ends
	for _, s := range similar {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out[:min(len(out), maxNear)]
}

// within returns the longest part of the path that the objects have, and the keys below it.
func (p Path) within(objects []json.RawMessage) (parent string, keys []string) {
	for n := len(p) - 1; n >= 0; n-- {
		below := map[string]bool{}
		for _, object := range objects {
			for _, raw := range p[:n].find(object).values {
				var m map[string]json.RawMessage
				if json.Unmarshal([]byte(raw), &m) == nil {
					for key := range m {
						below[key] = true
					}
				}
			}
		}
		if len(below) > 0 {
			return p[:n].String(), slices.Sorted(maps.Keys(below))
		}
	}
	return "", nil
}

// lister lists the paths of values. Those in an element of a list have two: by its label, and by
// [*].
type lister struct {
	paths []Path
	seen  map[string]bool
}

func (l *lister) list(value any, at Path) {
	if len(l.paths) >= maxPaths {
		return
	}
	text := at.String()
	if len(at) > 0 && !l.seen[text] {
		l.seen[text] = true
		l.paths = append(l.paths, slices.Clone(at))
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			l.list(value[key], append(at, step{key: key}))
		}
	case []any:
		by := labelKey(value)
		for _, e := range value {
			if label, ok := labelOf(e, by); ok {
				l.list(e, append(at, step{form: element, key: label}))
			}
			l.list(e, append(at, step{form: every}))
		}
	}
}

// plainPath returns the text of a path without marks: as somebody writes it who does not know the
// forms.
func plainPath(p Path) string {
	var steps []string
	for _, s := range p {
		if s.form == every {
			continue
		}
		steps = append(steps, s.key)
	}
	return strings.ToLower(strings.Join(steps, "."))
}
