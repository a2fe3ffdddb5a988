package timeline

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Difference is an object that differs between two States.
type Difference struct {
	Before *Version // nil: it was not there
	// After is nil if the object is gone. If it left the selection, it may still exist. Then After
	// is the version with which it left, of Op Left.
	After *Version
}

// Diff returns the objects that differ between two States: only one has them, or they have another
// version, or another form of the same version. They are sorted as State.Objects.
func Diff(from, to *State) []Difference {
	var out []Difference
	for key, b := range from.objects {
		a := to.objects[key]
		if a == nil {
			a = to.leftOf(b)
		}
		if a == nil || a.Gone() || !a.isSameAs(b) {
			out = append(out, Difference{b, a})
		}
	}
	for key, a := range to.objects {
		if from.objects[key] == nil {
			out = append(out, Difference{nil, a})
		}
	}
	SortDifferences(out)
	return out
}

// isSameAs reports whether v is the version b of an object, in the same form.
func (v *Version) isSameAs(b *Version) bool {
	switch {
	case v == b:
		return true
	case v.ResourceVersion != b.ResourceVersion || v.History != b.History:
		return false
	}
	return !v.Again && !b.Again || bytes.Equal(v.After, b.After)
}

// SortDifferences sorts as State.Objects.
func SortDifferences(all []Difference) {
	slices.SortFunc(all, func(x, y Difference) int { return compareVersions(x.either(), y.either()) })
}

// Any reports whether f returns true for the object before or after.
func (d Difference) Any(f func(object json.RawMessage) bool) bool {
	return d.Before != nil && f(d.Before.After) || d.After != nil && !d.After.Gone() && f(d.After.After)
}

func (d Difference) either() *Version {
	if d.Before != nil {
		return d.Before
	}
	return d.After
}
