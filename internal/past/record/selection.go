package record

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Selection selects the objects of a question.
type Selection struct {
	Resources []Resource // nil: all
	Namespace string     // a pattern; "": all
	Selector  labels.Selector
	Cluster   string // the name of the cluster; "": all in the record
	// ClusterUID is the beginning of the cluster's uid, which distinguishes clusters of one name;
	// "": any.
	ClusterUID string

	words []kinds.Word
}

// Resource is a resource of a Selection.
type Resource struct {
	Group, Plural string
	Names         []string // patterns; nil: all
	Namespaces    []string // names; nil: that of the Selection
	Word          string   // the user's word for it, which may name resources of several groups

	custom        bool // the record has its CRD
	clusterScoped bool // its objects have no namespace. As for kubectl, --namespace is not about them
}

// String returns the resource as kubectl writes it: "deployments.apps".
func (r Resource) String() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

// NewSelection parses arguments like those of kubectl get: RESOURCE[,RESOURCE…] [NAME…] or
// RESOURCE/NAME…. Record.Resolve sets the resources that they name.
func NewSelection(args []string, namespace, selector, cluster string) (*Selection, error) {
	s := &Selection{Namespace: namespace, Cluster: cluster}
	var err error
	s.words, err = readWords(args)
	if err != nil {
		return nil, err
	}
	if err := kinds.CheckPattern(namespace); err != nil {
		return nil, fmt.Errorf("--namespace %q: %w", namespace, err)
	}
	if selector == "" {
		return s, nil
	}
	s.Selector, err = labels.Parse(selector)
	if err != nil {
		return nil,
			fmt.Errorf("--selector %q: want label selectors as for kubectl (app=web,tier!=db): %w", selector, err)
	}
	return s, nil
}

// readWords parses the arguments, nil for all resources.
func readWords(args []string) ([]kinds.Word, error) {
	words, err := kinds.ReadWords(args)
	if err != nil {
		return nil, err
	}
	for i := range words {
		w := &words[i]
		switch {
		case w.Text == "*":
			return nil, &kinds.WordError{Arg: w.Text, Err: errors.New("want a resource")}
		case w.IsAll() && (len(words) > 1 || w.Names != nil):
			return nil, errors.New("all: it cannot be combined with other resources or with names")
		case w.IsAll():
			return nil, nil
		}
	}
	return words, nil
}

// objects returns the objects that a source must send.
func (s *Selection) objects() []consume.Objects {
	whole := consume.Objects{Namespace: literal(s.Namespace)}
	if len(s.Resources) == 0 {
		return []consume.Objects{whole}
	}
	var out []consume.Objects
	for _, r := range s.Resources {
		o := whole
		o.Groups, o.Resource = []string{r.Group}, r.Plural
		if r.clusterScoped && o.Namespace != "" {
			o.Namespace = consume.NoNamespace
		}
		if r.Namespaces != nil {
			for _, o.Namespace = range r.Namespaces {
				out = append(out, o)
			}
			continue
		}
		if r.Names == nil || slices.ContainsFunc(r.Names, func(name string) bool { return literal(name) == "" }) {
			out = append(out, o)
			continue
		}
		for _, o.Name = range r.Names {
			out = append(out, o)
		}
	}
	return out
}

// literal returns the only name that a pattern matches, "" if it can match several.
func literal(pattern string) string {
	if strings.ContainsAny(pattern, `*?[\`) {
		return ""
	}
	return pattern
}

// Takes reports whether an event is of an object of the selection (ignoring labels), or about
// scopes that may have one.
func (s *Selection) Takes(e *consume.Event) bool {
	if e.DeadLetterReason != "" || !s.takesCluster(e) {
		return false
	}
	switch {
	case e.Progress != nil:
		return slices.ContainsFunc(e.Progress.Scopes, func(p consume.ScopeProgress) bool {
			return s.Asks(p.Resource, p.Scope)
		})
	case e.Data == nil:
		return s.Asks(e.GroupResource(), e.Scope)
	}
	return s.TakesObject(e.GroupResource(), e.Namespace, e.Name)
}

// Asks reports whether a scope of a resource ("deployments.apps") may have an object of the
// selection. scope is "" for scopes that are not known.
func (s *Selection) Asks(resource, scope string) bool {
	covered := literal(s.Namespace) == "" || consume.ScopeCovers(scope, s.Namespace)
	return len(s.Resources) == 0 && covered || slices.ContainsFunc(s.Resources, func(r Resource) bool {
		if r.Namespaces == nil {
			return covered && r.String() == resource
		}
		return r.String() == resource && slices.ContainsFunc(r.Namespaces, func(namespace string) bool {
			return consume.ScopeCovers(scope, namespace)
		})
	})
}

// takesCluster reports whether an event is of a cluster of the selection.
func (s *Selection) takesCluster(e *consume.Event) bool {
	return (s.Cluster == "" || e.Cluster == s.Cluster) && strings.HasPrefix(e.ClusterUID, s.ClusterUID)
}

// TakesObject reports whether an object of a resource ("deployments.apps") is in the selection,
// ignoring labels.
func (s *Selection) TakesObject(groupResource, namespace, name string) bool {
	isIn := s.Namespace == "" || match(s.Namespace, namespace)
	return len(s.Resources) == 0 && isIn || slices.ContainsFunc(s.Resources, func(r Resource) bool {
		if r.Namespaces == nil && !isIn && !r.clusterScoped ||
			r.Namespaces != nil && !slices.Contains(r.Namespaces, namespace) {
			return false
		}
		return r.String() == groupResource &&
			(r.Names == nil || slices.ContainsFunc(r.Names, func(p string) bool { return match(p, name) }))
	})
}

// IsCustom reports whether the record has the CRD of the resource.
func (r *Resource) IsCustom() bool { return r.custom }

// With returns a copy of the selection that also has other resources.
func (s *Selection) With(resources ...Resource) *Selection {
	out := *s
	out.Resources = slices.Concat(s.Resources, resources)
	return &out
}

// Of returns a copy of the selection with one of its names alone, as it is written.
func (s *Selection) Of(name string) *Selection {
	out := *s
	out.Resources = nil
	for _, r := range s.Resources {
		if slices.Contains(r.Names, name) {
			r.Names = []string{name}
			out.Resources = append(out.Resources, r)
		}
	}
	return &out
}

// WithoutNames returns a copy of the selection that has the objects of all names.
func (s *Selection) WithoutNames() *Selection {
	out := *s
	out.Resources = slices.Clone(s.Resources)
	for i := range out.Resources {
		out.Resources[i].Names = nil
	}
	return &out
}

// Everything returns a copy of the selection that has the objects of all resources.
func (s *Selection) Everything() *Selection {
	out := *s
	out.Resources = nil
	return &out
}

// Matches reports whether a name is one that a question asks for: a name, or a pattern.
func Matches(asked, name string) bool { return match(asked, name) }

// LiteralNamespace returns the only namespace of the selection, "" if there may be several.
func (s *Selection) LiteralNamespace() string { return literal(s.Namespace) }

// Has reports whether the selection names a resource ("deployments.apps").
func (s *Selection) Has(groupResource string) bool {
	return slices.ContainsFunc(s.Resources, func(r Resource) bool { return r.String() == groupResource })
}

// IsOne reports whether the selection names one object of one resource, in any namespace.
func (s *Selection) IsOne() bool {
	return len(s.Resources) == 1 && len(s.Resources[0].Names) == 1 && literal(s.Resources[0].Names[0]) != ""
}

func match(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
