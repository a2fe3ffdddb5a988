package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// demand is what a selector asks of one label or field: to have one of the values, or (not) to have none of them. Without values: to
// be there, or not.
type demand struct {
	key    string
	not    bool
	values []string
}

// contradiction is a label or field of which the demands cannot all be met; "": none was found.
func contradiction(demands []demand) string {
	for _, d := range demands {
		if d.not {
			continue
		}
		met := func(value string) bool {
			return !slices.ContainsFunc(demands, func(e demand) bool {
				return e.key == d.key && len(e.values) > 0 && slices.Contains(e.values, value) == e.not
			})
		}
		absent := func(e demand) bool { return e.key == d.key && e.not && len(e.values) == 0 }
		if slices.ContainsFunc(demands, absent) || len(d.values) > 0 && !slices.ContainsFunc(d.values, met) {
			return d.key
		}
	}
	return ""
}

func demandsOnLabels(s labels.Selector) []demand {
	var list []demand
	all, _ := s.Requirements()
	for i := range all {
		d := demand{key: all[i].Key()}
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

func demandsOnFields(s fields.Selector) []demand {
	var list []demand
	for _, r := range s.Requirements() {
		list = append(list, demand{key: r.Field, not: r.Operator == selection.NotEquals, values: []string{r.Value}})
	}
	return list
}
