package live

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// selects reports whether a scope includes an object, judging by the name of the scope:
//
//	pods/shop,web-*?labelSelector=app=web&fieldSelector=spec.nodeName=a
//	pods?any=shop?labelSelector=team=payments|team-*
//
// An invalid selector selects nothing.
func selects(scope string, v *timeline.Version) bool {
	limits := limitsOf(scope)
	limits, clauses, several := cutAny(limits)
	if !clauseSelects(limits, v) {
		return false
	}
	if !several {
		return true
	}
	for clause := range strings.SplitSeq(clauses, "|") {
		if clauseSelects("/"+clause, v) {
			return true
		}
	}
	return false
}

// cutAny splits the limits of a scope into those that apply to all its objects, and the clauses: at
// least one clause applies to each object.
func cutAny(limits string) (all, clauses string, several bool) {
	for _, mark := range []string{"?any=", "&any="} {
		all, clauses, several = strings.Cut(limits, mark)
		if several {
			return all, clauses, true
		}
	}
	return limits, "", false
}

func clauseSelects(limits string, v *timeline.Version) bool {
	namespaces, selectors, _ := strings.Cut(limits, "?labelSelector=")
	labelSelector, fieldSelector, _ := strings.Cut(selectors, "&fieldSelector=")
	if selectors == "" {
		namespaces, fieldSelector, _ = strings.Cut(limits, "?fieldSelector=")
	}
	if namespaces != "" && !consume.ScopeCovers(namespaces, v.Namespace) {
		return false
	}
	byLabel, err := labels.Parse(labelSelector)
	if err != nil || !byLabel.Matches(labelsOf(v.After)) {
		return false
	}
	byField, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return false
	}
	for _, r := range byField.Requirements() {
		path, err := object.NewPath(r.Field)
		if err != nil {
			return false
		}
		value, err := object.Locate(v.After, path)
		text, _ := jsonscan.Text(value)
		if err != nil || (text == r.Value) == (r.Operator == "!=") {
			return false
		}
	}
	return true
}

func labelsOf(raw []byte) labels.Set {
	o, err := decode(raw)
	if err != nil {
		return nil
	}
	metadata, _ := o["metadata"].(map[string]any)
	all, _ := metadata["labels"].(map[string]any)
	out := labels.Set{}
	for name, value := range all {
		out[name], _ = value.(string)
	}
	return out
}
