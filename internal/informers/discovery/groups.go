package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Served is what an API server serves.
type Served struct {
	Resources   []selection.APIResource // those that can be listed and watched
	Unwatchable []selection.Unwatchable // the others
	Unknown     []string                // group versions that could not be read: their resources may be served
}

// Finder discovers what an API server serves, again and again. It is safe for concurrent use.
type Finder struct {
	client *apiserver.Client

	mu   sync.Mutex
	last found // of the last discovery
}

// found is the result of a discovery, with the documents that it is from.
type found struct {
	served    *Served
	documents *apiserver.Documents
}

// NewFinder returns a Finder that has discovered nothing.
func NewFinder(c *apiserver.Client) *Finder { return &Finder{client: c} }

// Discover does what the function of that name does. While the API server says that nothing has
// changed, it returns the last result, which must not be changed.
func (f *Finder) Discover(ctx context.Context) (*Served, error) {
	f.mu.Lock()
	last := f.last
	f.mu.Unlock()
	if last.served != nil && f.client.HasSame(ctx, last.documents) {
		return last.served, nil
	}
	now := found{documents: new(apiserver.Documents)}
	var err error
	now.served, err = Discover(apiserver.WithDocuments(ctx, now.documents), f.client)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = now
	return now.served, nil
}

// Discover returns the served resources. A group version that is not answered within the limit of a
// request is unknown.
func Discover(ctx context.Context, c *apiserver.Client) (*Served, error) {
	out := new(Served)
	groups, lists, err := c.Discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && ctx.Err() != nil { // then an answer that looks partial may have no groups at all
		return nil, fmt.Errorf("discover resources: %w", context.Cause(ctx))
	}
	if partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		for gv := range partial.Groups {
			out.Unknown = append(out.Unknown, gv.String())
		}
		slices.Sort(out.Unknown)
	} else if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	byVersion := make(map[string][]metav1.APIResource, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l.APIResources
	}
	for _, g := range groups {
		out.addGroup(g, byVersion)
	}
	return out, nil
}

// addGroup adds the resources of a group, each with its preferred version first.
func (s *Served) addGroup(g *metav1.APIGroup, byVersion map[string][]metav1.APIResource) {
	index := map[string]int{} // in s.Resources, by name
	others := slices.DeleteFunc(slices.Clone(g.Versions), func(v metav1.GroupVersionForDiscovery) bool {
		return v == g.PreferredVersion
	})
	for _, v := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, others...) {
		for _, r := range byVersion[v.GroupVersion] {
			if strings.Contains(r.Name, "/") {
				continue
			}
			version := object.Resource{
				Group:      g.Name,
				Version:    v.Version,
				Name:       r.Name,
				Kind:       r.Kind,
				Namespaced: r.Namespaced,
			}
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				s.Unwatchable = append(s.Unwatchable, selection.Unwatchable{Resource: version, Verbs: r.Verbs})
				continue
			}
			at, ok := index[r.Name]
			if !ok {
				at = len(s.Resources)
				index[r.Name] = at
				s.Resources = append(s.Resources, selection.APIResource{Group: g.Name, Name: r.Name})
			}
			s.Resources[at].Versions = append(s.Resources[at].Versions, version)
		}
	}
}

// reviewsAtOnce limits concurrent access reviews.
const reviewsAtOnce = 8

// Access asks whether a resource may be listed and watched in a namespace.
type Access struct {
	Resource  object.Resource
	Namespace string // "": all
	Answered  bool
	Allowed   bool // if Answered
}

// Review answers all questions. If a request fails, Review returns its error, and some questions
// are not answered.
func Review(ctx context.Context, c *apiserver.Client, all []*Access) error {
	var g errgroup.Group
	var failed atomic.Bool
	g.SetLimit(reviewsAtOnce)
	for _, a := range all {
		g.Go(func() (err error) {
			if failed.Load() {
				return nil // another question has returned the error
			}
			for _, verb := range []string{"list", "watch"} {
				a.Allowed, err = c.Allowed(ctx, &a.Resource, a.Namespace, verb)
				if !a.Allowed || err != nil {
					break
				}
			}
			a.Answered = err == nil
			failed.CompareAndSwap(false, err != nil)
			return err
		})
	}
	return g.Wait()
}

// IsBuiltIn reports whether the API server itself serves a group, according to one release of
// Kubernetes. This decides which resources are watched and which permissions are needed. It never
// decides whether objects were deleted; see Extensions.DeletedAt.
func IsBuiltIn(group string) bool {
	return slices.Contains([]string{
		"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps",
		"authentication.k8s.io",
		"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io",
		"discovery.k8s.io", "events.k8s.io",
		"extensions", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"policy",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
		"storagemigration.k8s.io",
	}, group)
}

// SomeExtension is a group that no API server has. It stands for any extension.
const SomeExtension = "extension.invalid"

// TakesExtensions reports whether a pattern can match extensions. If one can, the agent watches
// definitions and APIServices.
func TakesExtensions(p selection.Pattern) bool {
	resource, group, _ := strings.Cut(p.String(), ".")
	in := "v1"
	if v, rest, _ := strings.Cut(group, "."); len(v) > 1 && v[0] == 'v' && '0' <= v[1] && v[1] <= '9' {
		in, group = v, rest
	}
	switch {
	case group != "":
		return !IsBuiltIn(group)
	case strings.HasSuffix(p.String(), "."):
		return false // the core group
	case resource == "*":
		resource = "any"
	}
	return p.Match(SomeExtension, in, resource)
}
