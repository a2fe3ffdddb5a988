package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/wording"
)

func validateWatch(rules []Rule, path *field.Path) field.ErrorList {
	var list field.ErrorList
	if len(rules) == 0 {
		return append(list, field.Required(path, "must have at least one rule, such as {resources: [pods]}"))
	}
	order := orderOf(rules)
	for j := range rules {
		r, at := &rules[j], path.Index(j)
		if len(r.Resources) == 0 {
			list = append(list, field.Required(at.Child("resources"), "must name at least one resource, such as pods"))
		}
		list = append(list, r.validateScope(at.Child("resources"))...)
		list = append(list, check.Unique(r.Resources, at.Child("resources"))...)
		list = append(list, check.Unique(r.Except, at.Child("except"))...)
		list = append(list, check.Unique(r.Namespaces, at.Child("namespaces"))...)
		list = append(list, r.Namespaces.validate(at.Child("namespaces"))...)
		list = append(list, r.validateSelectors(at)...)
		list = append(list, r.validateSent(at)...)
		list = append(list, order.validate(j, path)...)
		list = append(list, order.validateFields(j, path)...)
	}
	return list
}

// validate finds globs that exclude everything.
func (n Namespaces) validate(path *field.Path) field.ErrorList {
	var list field.ErrorList
	included := 0
	for i, p := range n {
		if p == "" || strings.HasPrefix(string(p), "!") { // "": it was malformed
			continue
		}
		included++
		if by := slices.IndexFunc(n, func(e NamespacePattern) bool { return e.excludes(p) }); by >= 0 {
			list = append(list,
				field.Forbidden(path.Index(i), fmt.Sprintf("can never match: %s excludes it", path.Index(by))))
		}
	}
	switch {
	case len(n) > 0 && included == 0 && !slices.Contains(n, ""):
		return field.ErrorList{field.Required(path, `can never match: it only excludes; add "*" for all the others`)}
	case len(list) < included:
		return nil // the other globs select namespaces
	}
	return list
}

// validateSelectors finds selectors that are malformed or select nothing.
func (r *Rule) validateSelectors(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if s, err := labels.Parse(r.LabelSelector); err != nil {
		list = append(list, field.Invalid(path.Child("labelSelector"), r.LabelSelector,
			"must be a label selector such as team=payments or \"tier in (web, db)\": "+flatten(err)))
	} else if key := contradiction(requirementsOnLabels(s)); key != "" {
		list = append(list,
			field.Forbidden(path.Child("labelSelector"),
				"can never match: no object meets all of its conditions on "+key))
	}
	if s, err := fields.ParseSelector(r.FieldSelector); err != nil {
		list = append(list, field.Invalid(path.Child("fieldSelector"), r.FieldSelector,
			"must be a field selector such as spec.nodeName=n1 or status.phase!=Running: "+flatten(err)))
	} else if key := contradiction(requirementsOnFields(s)); key != "" {
		list = append(list,
			field.Forbidden(path.Child("fieldSelector"),
				"can never match: no object meets all of its conditions on "+key))
	}
	return list
}

// validateScope finds resources without namespaces in a rule for some namespaces only.
func (r *Rule) validateScope(path *field.Path) field.ErrorList {
	var list field.ErrorList
	for i, p := range r.Resources {
		b := builtinOf(p.Resource)
		if b != nil && b.cluster && slices.Equal(p.Groups(), b.groups) && !r.Namespaces.Match("") {
			list = append(list, field.Forbidden(path.Index(i), fmt.Sprintf(
				"can never match: %s have no namespace, the rule takes some namespaces only; give %[1]s a rule of their own",
				p)))
		}
	}
	return list
}

// validateSent validates the keys about the changes that are sent.
func (r *Rule) validateSent(path *field.Path) field.ErrorList {
	list := check.Unique(r.Operations, path.Child("operations"))
	for i, o := range r.Operations {
		at := path.Child("operations").Index(i)
		switch {
		case slices.Contains(Choosable(), o):
		case slices.Contains(o.Values(), string(o)):
			list = append(list,
				field.Invalid(at, string(o),
					"must be created, updated or deleted: read, entered and left are always sent, "+
						"because consumers need them to know which objects exist"))
		default:
			list = append(list,
				field.Invalid(at, string(o),
					"must be one of created, updated, deleted"+meant(string(o), check.Names(Choosable()...))))
		}
	}
	switch {
	case r.OnError == "":
	case r.Where == "":
		list = append(list, field.Forbidden(path.Child("onError"), "has no effect without where; remove it"))
	default:
		list = append(list, check.InEnum(path.Child("onError"), r.OnError)...)
	}
	return append(list, validatePaths(r.Redact, path.Child("redact"), "redact")...)
}

// Choosable returns the operations that a rule can exclude: see object.ChoosableOps.
func Choosable() []Operation {
	var all []Operation
	for _, op := range object.ChoosableOps() {
		all = append(all, OperationOf(op))
	}
	return all
}

// validateNoise finds unknown filters.
func validateNoise(noise []Noise, path *field.Path) field.ErrorList {
	list := check.Unique(noise, path)
	for i, n := range noise {
		if !slices.Contains(n.Values(), string(n)) {
			list = append(list,
				field.Invalid(path.Index(i), string(n), "must be "+yamldoc.OneOf(n)+meant(string(n), n.Values())))
		}
	}
	return list
}

// meant returns " (did you mean …?)", or nothing if no word is similar.
func meant(word string, words []string) string {
	if near := wording.Nearest(strings.ReplaceAll(word, "_", "-"), words); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ""
}

// validatePaths rejects malformed paths, and paths of fields that identify an object. verb is strip
// or redact.
func validatePaths(paths []string, path *field.Path, verb string) field.ErrorList {
	list := check.Unique(paths, path)
	for i, s := range paths {
		switch at := path.Index(i); {
		case !fieldPath.MatchString(s):
			list = append(list, field.Invalid(at, s, "must be a path such as metadata.managedFields, "+
				`metadata.annotations["example.com/note"] or spec.containers[*].env`))
		case identity.MatchString(s):
			list = append(list, field.Invalid(at, s, "must not "+verb+" what identifies an object"))
		}
	}
	return list
}

var (
	// fieldPath matches the paths that object.NewCutter accepts: names, ["names"] as JSON strings,
	// and [*] for all elements of a list or members of a mapping.
	fieldPath = regexp.MustCompile(`^[^\x00-\x20\x7f.\[\]*"']+(` +
		`\.[^\x00-\x20\x7f.\[\]*"']+|\[\*\]|\["([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"\])*$`)
	identity = regexp.MustCompile(`^(apiVersion|kind|metadata(\.(name|namespace|uid|resourceVersion)|` +
		`\["(name|namespace|uid|resourceVersion)"\]|\[\*\])?)$`)
)

func (r *Redaction) validate(path *field.Path) field.ErrorList {
	list := check.InEnum(path.Child("mode"), r.Mode)
	list = append(list, check.SecretFile(path.Child("keyFile"), r.KeyFile)...)
	switch {
	case r.Mode == RedactHash && r.KeyFile == "":
		list = append(list,
			field.Forbidden(path.Child("mode"),
				"hash needs a key: set keyFile to the file with the key, such as /etc/kubecdc/redaction.key"))
	case r.Mode == RedactRemove && r.KeyFile != "":
		list = append(list,
			field.Forbidden(path.Child("keyFile"),
				"has no effect if mode is remove; write mode: hash, or remove keyFile"))
	}
	if r.AcrossObjects && r.Mode == RedactRemove {
		list = append(list,
			field.Forbidden(path.Child("acrossObjects"),
				"has no effect if mode is remove: removed values have no hash to compare"))
	}
	return list
}
