package console

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Filter selects events. The zero value selects all.
type Filter struct {
	targets   []target
	namespace string // a pattern
	selector  labels.Selector
	kinds     []string // letters of ops, and types without their prefix; nil for all
	progress  bool     // includes progress if kinds is nil
}

// target is a resource, or some of its objects.
type target struct {
	resource string   // plural or singular, in lower case; "" for every one
	group    string   // if groups is nil; "" for every one
	version  string   // "" for every one
	groups   []string // of a resource that Kubernetes itself serves
	names    []string // patterns; nil for every one
}

// Selection is the selection as the user wrote it.
type Selection struct {
	Args      []string // RESOURCE[,RESOURCE…] [NAME…] or RESOURCE/NAME…, as for kubectl get
	Namespace string   // a pattern; "" for all
	Selector  string   // of labels
	Ops       []string // created, c, …; snapshot, gap, progress
	Progress  bool     // includes progress if Ops is empty
}

// NewFilter parses a selection. Its errors list the permitted forms.
func NewFilter(s Selection) (*Filter, error) {
	f := &Filter{namespace: s.Namespace, progress: s.Progress}
	var err error
	f.targets, err = readTargets(s.Args)
	if err != nil {
		return nil, err
	}
	if err := kinds.CheckPattern(s.Namespace); err != nil {
		return nil, fmt.Errorf("--namespace %q: %w", s.Namespace, err)
	}
	f.selector, err = labels.Parse(s.Selector)
	if err != nil {
		return nil,
			fmt.Errorf(
				"--selector %q: want label selectors as for kubectl (app=web,tier!=db, tier in (web,api), !canary): %w",
				s.Selector, err)
	}
	if s.Selector == "" {
		f.selector = nil
	}
	for _, op := range s.Ops {
		kind, err := readKind(op)
		if err != nil {
			return nil, err
		}
		f.kinds = append(f.kinds, kind)
	}
	return f, nil
}

// Kinds returns the values of --op.
func Kinds() []string {
	return append(Ops(), "snapshot", "gap", "progress")
}

// readKind parses one value of --op. It returns the letter of an op, or the word of a stream event.
func readKind(s string) (string, error) {
	if op, err := ReadOp(s); err == nil {
		return string(op), nil
	}
	if word := strings.ToLower(strings.TrimSpace(s)); slices.Contains(Kinds(), word) {
		return word, nil
	}
	return "",
		fmt.Errorf("--op %q: want some of %s (or %s), separated by commas", s,
			strings.Join(Kinds(), ", "), Letters())
}

// OmitProgress makes Match leave out progress, unless the selection names it. Progress claims whole
// scopes, and not all their objects are shown: a file of these events would look complete.
func (f *Filter) OmitProgress() { f.progress = false }

// Reads reports whether the selection names reads.
func (f *Filter) Reads() bool { return slices.Contains(f.kinds, string(consume.Read)) }

func readTargets(args []string) ([]target, error) {
	words, err := kinds.ReadWords(args)
	if err != nil {
		return nil, err
	}
	var out []target
	for i := range words {
		out = append(out, targetOf(&words[i]))
	}
	return out, nil
}

func targetOf(w *kinds.Word) target {
	t := target{
		resource: w.Name,
		version:  w.Version,
		group:    w.Group,
		names:    w.Names,
	}
	plural, groups := expand(t.resource)
	if plural != "" && (t.group == "" || slices.Contains(groups, t.group)) {
		t.resource, t.groups = plural, groups
	}
	if t.group != "" {
		t.groups = nil
	}
	return t
}

// Objects returns the objects that a bus must send, with the stream events of their resources:
// Match is false for all others.
func (f *Filter) Objects() []consume.Objects {
	whole := consume.Objects{Namespace: exactly(f.namespace)}
	if len(f.targets) == 0 {
		return []consume.Objects{whole}
	}
	var out []consume.Objects
	for i := range f.targets {
		t := &f.targets[i]
		o := whole
		plural, groups := expand(t.resource)
		switch {
		case t.resource == "":
		case t.groups != nil:
			o.Resource, o.Groups = plural, t.groups
		case t.group != "":
			o.Groups = []string{t.group}
			if slices.Contains(groups, t.group) {
				o.Resource = plural
			} // else the word may be a kind, whose plural is not known
		}
		if t.names == nil || slices.ContainsFunc(t.names, func(name string) bool { return exactly(name) == "" }) {
			out = append(out, o)
			continue
		}
		for _, name := range t.names {
			o.Name = name
			out = append(out, o)
		}
	}
	return out
}

// exactly returns the only name that a pattern matches, "" if it can match several.
func exactly(pattern string) string {
	if strings.ContainsAny(pattern, `*?[\`) {
		return ""
	}
	return pattern
}

// Match reports whether e is selected. A gap needs only a matching resource, because the missing
// events may be selected. Other stream events need a selection of whole resources.
func (f *Filter) Match(e *consume.Event) bool {
	if !f.matchKind(e) {
		return false
	}
	if e.Data == nil {
		whole := f.namespace == "" && f.selector == nil
		return (whole || e.Type == consume.TypeGap) && f.matchTarget(e, e.Type == consume.TypeGap)
	}
	if !f.matchTarget(e, false) {
		return false
	}
	if f.namespace != "" && !match(f.namespace, e.Namespace) {
		return false
	}
	return f.selector == nil || f.selector.Matches(objectLabels{labelsOf(e.Data)})
}

func (f *Filter) matchKind(e *consume.Event) bool {
	kind := string(e.Op)
	if e.Data == nil {
		kind, _, _ = strings.Cut(e.Type.Name(), ".")
	}
	if f.kinds != nil {
		return slices.Contains(f.kinds, kind)
	}
	return f.progress || kind != "progress"
}

// matchTarget reports whether e is about one of the targets; anyName ignores the names of objects.
func (f *Filter) matchTarget(e *consume.Event, anyName bool) bool {
	if len(f.targets) == 0 {
		return true
	}
	return slices.ContainsFunc(f.targets, func(t target) bool {
		return t.match(e) && (anyName || t.names == nil ||
			e.Data != nil && slices.ContainsFunc(t.names, func(p string) bool { return match(p, e.Name) }))
	})
}

func (t *target) match(e *consume.Event) bool {
	if t.resource == "" {
		return true
	}
	if e.Progress != nil {
		return slices.ContainsFunc(e.Progress.Scopes, t.matchScope)
	}
	group, apiVersion, ok := strings.Cut(e.APIVersion, "/")
	if !ok {
		group, apiVersion = "", e.APIVersion
	}
	isNamed := t.resource == e.Resource || strings.EqualFold(t.resource, e.Kind)
	isVersion := t.version == "" || t.version == apiVersion
	return isNamed && isVersion && t.matchGroup(group)
}

// matchScope reports whether progress of a scope is about the target.
func (t *target) matchScope(s consume.ScopeProgress) bool {
	plural, group, _ := strings.Cut(s.Resource, ".")
	return t.resource == plural && t.matchGroup(group)
}

func (t *target) matchGroup(group string) bool {
	if t.groups != nil {
		return slices.Contains(t.groups, group)
	}
	return t.group == "" || t.group == group
}

func match(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// labelsOf returns the labels, as JSON, of the object after the event, or of its last known state;
// nil if it has none.
func labelsOf(d *consume.Data) []byte {
	object := d.After
	if !exists(object) {
		object = d.Before
	}
	return lookup(lookup(trim(object), "metadata"), "labels")
}

// objectLabels are the labels of an object, as raw JSON.
type objectLabels struct{ raw []byte }

// Lookup returns the value of a label.
func (l objectLabels) Lookup(label string) (string, bool) {
	v := lookup(l.raw, label)
	return string(unquote(v)), v != nil
}

// Has reports whether the label exists.
func (l objectLabels) Has(label string) bool {
	_, ok := l.Lookup(label)
	return ok
}

// Get returns the value of a label, "" if there is none.
func (l objectLabels) Get(label string) string {
	value, _ := l.Lookup(label)
	return value
}
