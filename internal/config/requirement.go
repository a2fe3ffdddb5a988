package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// requirement is the condition of a selector on one label or field: to have one of the values or,
// with not, none of them. Without values: to exist or, with not, to be absent.
type requirement struct {
	key    string
	not    bool
	values []string
}

// contradiction returns a label or field whose requirements cannot all be met; "": none was found.
func contradiction(requirements []requirement) string {
	for _, d := range requirements {
		if d.not {
			continue
		}
		met := func(value string) bool {
			return !slices.ContainsFunc(requirements, func(e requirement) bool {
				return e.key == d.key && len(e.values) > 0 && slices.Contains(e.values, value) == e.not
			})
		}
		absent := func(e requirement) bool { return e.key == d.key && e.not && len(e.values) == 0 }
		if slices.ContainsFunc(requirements, absent) || len(d.values) > 0 && !slices.ContainsFunc(d.values, met) {
			return d.key
		}
	}
	return ""
}

func requirementsOnLabels(s labels.Selector) []requirement {
	var list []requirement
	all, _ := s.Requirements()
	for i := range all {
		d := requirement{key: all[i].Key()}
		switch all[i].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			d.values = all[i].ValuesUnsorted()
		case selection.NotIn, selection.NotEquals:
			d.not, d.values = true, all[i].ValuesUnsorted()
		case selection.DoesNotExist:
			d.not = true
		}
		list = append(list, d) // a number is larger or less: there is one
	}
	return list
}

func requirementsOnFields(s fields.Selector) []requirement {
	var list []requirement
	for _, r := range s.Requirements() {
		list = append(list, requirement{key: r.Field, not: r.Operator == selection.NotEquals, values: []string{
			r.Value,
		}})
	}
	return list
}
