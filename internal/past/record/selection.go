package record

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

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

	words []word
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

// word is the user's word for a resource.
type word struct {
	text, name, group string
	names             []string
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
	if _, err := path.Match(namespace, ""); err != nil {
		return nil, fmt.Errorf("--namespace %q: want a name, or a pattern with * ? [a-z]", namespace)
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

func readWords(args []string) ([]word, error) {
	slashes := slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "/") })
	var out []word
	for k, arg := range args {
		if k > 0 && !slashes { // RESOURCE NAME NAME…
			break
		}
		for part := range strings.SplitSeq(arg, ",") {
			w, err := readWord(part, slashes && len(args) > 1)
			if err != nil {
				return nil,
					fmt.Errorf(
						"%q: %w (as for kubectl: pods, deploy/web, deployments.apps, pods,services, po web-0 web-1)",
						arg, err)
			}
			if !slashes && len(args) > 1 {
				w.names = args[1:]
			}
			for _, name := range w.names {
				if _, err := path.Match(name, ""); err != nil || name == "" {
					return nil, fmt.Errorf("%q: want an object's name, * and ? allowed", name)
				}
			}
			out = append(out, w)
		}
	}
	if slices.ContainsFunc(out, func(w word) bool { return w.name == "all" }) {
		if len(out) > 1 || out[0].names != nil {
			return nil, errors.New("all: it cannot be combined with other resources or with names")
		}
		return nil, nil
	}
	return out, nil
}

func readWord(text string, mustName bool) (word, error) {
	plain := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?$`)
	version := regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
	resource, name, named := strings.Cut(text, "/")
	resource = strings.ToLower(strings.TrimSpace(resource)) // kubectl accepts Pods and PODS, too
	switch {
	case !plain.MatchString(resource):
		return word{}, errors.New("want a resource")
	case named && (name == "" || strings.Contains(name, "/")):
		return word{}, errors.New("want one name after the slash; the namespace goes to --namespace")
	case mustName && !named:
		return word{}, errors.New("RESOURCE/NAME and RESOURCE NAME cannot be combined")
	}
	w := word{text: resource}
	w.name, w.group, _ = strings.Cut(strings.TrimSuffix(resource, "."), ".")
	if v, rest, _ := strings.Cut(w.group, "."); version.MatchString(v) {
		w.group = rest
	}
	if named {
		w.names = []string{name}
	}
	return w, nil
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

// Adding returns a copy of the selection that also has other resources.
func (s *Selection) Adding(resources ...Resource) *Selection {
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

// One reports whether the selection names one object of one resource, in any namespace.
func (s *Selection) One() bool {
	return len(s.Resources) == 1 && len(s.Resources[0].Names) == 1 && literal(s.Resources[0].Names[0]) != ""
}

func match(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
