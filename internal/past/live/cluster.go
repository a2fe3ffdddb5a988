package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Cluster is a running cluster.
type Cluster struct {
	Client *apiserver.Client

	objects atomic.Int64
}

// Objects returns the number of objects that have been read so far. It is safe for concurrent use.
func (c *Cluster) Objects() int64 { return c.objects.Load() }

// Question describes a comparison.
type Question struct {
	State *timeline.State
	Time  time.Time // of the state's moment
	// Takes reports whether to compare an object, given its resource ("deployments.apps"),
	// namespace and name.
	Takes func(resource, namespace, name string) bool
	// Namespace is the only one to compare; "" if there may be several.
	Namespace string
	// Labelled reports whether to return the difference of an object that has this JSON, before or
	// after. It may be nil.
	Labelled func(object json.RawMessage) bool
	// Withheld returns the paths that the record lacks for a resource, because of its agent's
	// configuration. It may be nil.
	Withheld func(resource string) []string
	// Own reports whether the configuration of the agent names an object as its own, which it never
	// captures. It may be nil.
	Own func(resource, namespace, name string) bool
	// Known reports that Withheld returns all these paths. If not, a live value is returned only
	// where the record has a value of the same object at the same path.
	Known bool
}

// Answer is the result of a comparison.
type Answer struct {
	// Differences are sorted like those of timeline.Diff. After is nil if the object no longer
	// exists. The Op of After is:
	//	Created  the object was created after the moment
	//	Entered  it is older, and the state does not have it
	//	Left     it no longer matches the selectors of its scope
	//	Updated  it is another version
	Differences []timeline.Difference
	// Withheld has the paths that were removed from the differing objects of each resource, and
	// "copies of Secrets" if any were.
	Withheld map[string][]string
	// Unproven has the paths of live values that were removed because Question.Known is false.
	Unproven map[string][]string
	// Own has the objects that were left out because their agent never captures them, as
	// "configmaps kubecdc/checkpoint", sorted.
	Own []string
}

// AnotherClusterError reports that the record belongs to another cluster.
type AnotherClusterError struct{ Recorded, Live string }

func (e *AnotherClusterError) Error() string {
	return fmt.Sprintf("the record is of the cluster with uid %s, the kubeconfig leads to the cluster with uid %s",
		e.Recorded, e.Live)
}

// Compare returns the differences between a state and the cluster. It omits scopes without a state
// at the moment in the record.
func (c *Cluster) Compare(ctx context.Context, q *Question) (*Answer, error) {
	if err := c.checkIdentity(ctx, q.State); err != nil {
		return nil, err
	}
	scopes := map[string][]certainty.Scope{}
	for _, s := range q.State.Scopes() {
		if s.Name != "" && (s.Certainty != certainty.Unknown || s.CompleteUpTo() != certainty.Bound{}) {
			scopes[s.Resource] = append(scopes[s.Resource], s)
		}
	}
	recorded := map[string][]*timeline.Version{}
	for _, v := range q.State.Objects() {
		recorded[v.Resource] = append(recorded[v.Resource], v)
	}
	out := &Answer{Withheld: map[string][]string{}, Unproven: map[string][]string{}}
	for resource, of := range scopes {
		k := &comparison{
			cluster:  c,
			q:        q,
			scopes:   of,
			resource: resource,
			recorded: recorded[resource],
		}
		if err := k.run(ctx, out); err != nil {
			return nil, fmt.Errorf("compare %s with the cluster at %s: %w", resource, c.Client.Host, err)
		}
	}
	timeline.SortDifferences(out.Differences)
	slices.Sort(out.Own)
	return out, nil
}

// checkIdentity returns an error if the state belongs to another cluster.
func (c *Cluster) checkIdentity(ctx context.Context, s *timeline.State) error {
	recorded := ""
	for _, v := range s.Objects() {
		recorded = v.ClusterUID
		if recorded != "" {
			break
		}
	}
	if recorded == "" {
		return nil
	}
	uid, err := c.Client.ClusterUID(ctx)
	switch {
	case err != nil:
		return err
	case uid != recorded:
		return &AnotherClusterError{recorded, uid}
	}
	return nil
}

// comparison compares the objects of one resource.
type comparison struct {
	cluster  *Cluster
	q        *Question
	scopes   []certainty.Scope
	resource string
	recorded []*timeline.Version

	byUID   map[string]*timeline.Version
	mask    *mask
	changed []timeline.Difference // not masked yet
	seen    map[string]bool       // uids of recorded objects

	checkpoints map[string][]*checkpoint.Document // by namespace; see isOwn
	own         []string                          // see Answer.Own
}

func (c *comparison) run(ctx context.Context, out *Answer) error {
	c.byUID, c.seen = map[string]*timeline.Version{}, map[string]bool{}
	var versions []string // API versions of the record, that of the newest object first
	slices.SortStableFunc(c.recorded, func(a, b *timeline.Version) int { return b.Time.Compare(a.Time) })
	for _, v := range c.recorded {
		c.byUID[v.UID] = v
		if !slices.Contains(versions, v.APIVersion) {
			versions = append(versions, v.APIVersion)
		}
	}
	served, err := c.cluster.findServed(ctx, c.resource)
	if err != nil {
		return err
	}
	var paths []string
	if c.q.Withheld != nil {
		paths = c.q.Withheld(c.resource)
	}
	c.mask, err = newMask(c.resource, paths, c.q.Known)
	if err != nil {
		return err
	}
	if len(versions) == 0 && len(served) > 0 {
		versions = []string{served[0].APIVersion()}
	}
	for n, apiVersion := range versions {
		if len(served) == 0 {
			break // the resource was removed, and its objects with it
		}
		i := slices.IndexFunc(served, func(r object.Resource) bool { return r.APIVersion() == apiVersion })
		if i < 0 {
			return fmt.Errorf(
				"the record has objects in %s, which the cluster does not serve any more: compare two moments of the record instead",
				apiVersion)
		}
		if err := c.listResource(ctx, &served[i], n == 0); err != nil {
			return err
		}
	}
	for _, v := range c.recorded {
		if !c.seen[v.UID] {
			c.changed = append(c.changed, timeline.Difference{Before: v})
		}
	}
	if c.q.Labelled != nil {
		c.changed = slices.DeleteFunc(c.changed, func(d timeline.Difference) bool { return !d.Any(c.q.Labelled) })
	}
	for _, d := range c.changed {
		if d.Before != nil && d.Before.After != nil {
			if err := c.mask.noteRedacted(d.Before.After); err != nil {
				return err
			}
		}
	}
	for _, d := range c.changed {
		if err := c.mask.apply(&d); err != nil {
			return err
		}
		out.Differences = append(out.Differences, d)
	}
	out.Own = append(out.Own, c.own...)
	if len(c.changed) > 0 && len(c.mask.paths) > 0 {
		out.Withheld[c.resource] = slices.Clone(c.mask.paths)
	}
	if c.mask.hides {
		out.Withheld[c.resource] = append(out.Withheld[c.resource], "copies of Secrets")
	}
	if len(c.mask.unproven) > 0 {
		out.Unproven[c.resource] = slices.Sorted(maps.Keys(c.mask.unproven))
	}
	return nil
}

// findServed returns the versions in which the API server serves a resource, the preferred one
// first.
func (c *Cluster) findServed(ctx context.Context, resource string) ([]object.Resource, error) {
	plural, group, _ := strings.Cut(resource, ".")
	groups, err := c.Client.Discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return nil, err
	}
	var out []object.Resource
	for i := range groups.Groups {
		g := &groups.Groups[i]
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			list, err := c.Client.Discovery.ServerResourcesForGroupVersionWithContext(ctx, v.GroupVersion)
			if apierrors.IsNotFound(err) {
				continue // it was removed in the meantime
			}
			if err != nil {
				return nil, fmt.Errorf("ask what is served in %s: %w", v.GroupVersion, err)
			}
			for j := range list.APIResources {
				if r := &list.APIResources[j]; r.Name == plural {
					found := object.Resource{
						Group:      group,
						Version:    v.Version,
						Name:       plural,
						Kind:       r.Kind,
						Namespaced: r.Namespaced,
					}
					at := len(out)
					if v.Version == g.PreferredVersion.Version {
						at = 0
					}
					out = slices.Insert(out, at, found)
				}
			}
		}
	}
	return out, nil
}

// listResource compares the objects that the record has in the version of r; if first is set, also
// live ones that are not in the record.
func (c *comparison) listResource(ctx context.Context, r *object.Resource, first bool) error {
	scanner := object.NewScanner(nil)
	for _, namespace := range c.namespaces(r) {
		o := metav1.ListOptions{Limit: apiserver.PageSize}
		for {
			meta, err := c.cluster.Client.List(ctx, r, namespace, apiserver.JSON, o, func(raw []byte) error {
				c.cluster.objects.Add(1)
				json, m, err := scanner.Scan(nil, raw, r.Kind, r.APIVersion())
				if err != nil {
					return err
				}
				return c.takeObject(ctx, &timeline.Version{
					Object: consume.Object{
						Source:     c.scopes[0].Source,
						ClusterUID: c.scopes[0].ClusterUID,
						Resource:   c.resource,
						Namespace:  string(m.Namespace),
						Name:       string(m.Name),
						UID:        string(m.UID),
					},
					APIVersion:      r.APIVersion(),
					Kind:            r.Kind,
					Op:              consume.Updated,
					ResourceVersion: string(m.ResourceVersion),
					After:           json,
				}, first)
			})
			if err != nil {
				return err
			}
			o.Continue = meta.Continue
			if o.Continue == "" {
				break
			}
		}
	}
	return nil
}

// namespaces returns the namespaces in which objects are listed; "" stands for all at once.
func (c *comparison) namespaces(r *object.Resource) []string {
	if !r.Namespaced {
		return []string{""}
	}
	if c.q.Namespace != "" {
		return []string{c.q.Namespace}
	}
	var out []string
	for i := range c.scopes {
		patterns, _, _ := strings.Cut(limitsOf(c.scopes[i].Name), "?")
		namespace, ok := strings.CutPrefix(patterns, "/")
		if !ok || strings.ContainsAny(namespace, "*?[,!") {
			return []string{""}
		}
		if !slices.Contains(out, namespace) {
			out = append(out, namespace)
		}
	}
	return out
}

// takeObject compares an object of the cluster.
func (c *comparison) takeObject(ctx context.Context, now *timeline.Version, first bool) error {
	if !c.q.Takes(c.resource, now.Namespace, now.Name) {
		return nil
	}
	was := c.byUID[now.UID]
	selected := slices.ContainsFunc(c.scopes, func(s certainty.Scope) bool { return selects(s.Name, now) })
	switch {
	case was == nil:
		if !first || !selected {
			return nil
		}
		own, err := c.isOwn(ctx, now)
		if own && (c.q.Labelled == nil || c.q.Labelled(now.After)) {
			c.own = append(c.own, c.resource+" "+now.Namespace+"/"+now.Name)
		}
		if own || err != nil {
			return err
		}
		now.Op = consume.Created
		if created(now.After).Before(c.q.Time.Truncate(time.Second)) {
			now.Op = consume.Entered
		}
	case was.APIVersion != now.APIVersion:
		return nil
	default:
		c.seen[now.UID] = true
		now.Cluster, now.ClusterUID = was.Cluster, was.ClusterUID
		if !selected {
			now.Op = consume.Left
			break
		}
		if was.ResourceVersion != now.ResourceVersion {
			break
		}
		if was.After == nil {
			return nil
		}
		same, err := c.mask.learn(was.After, now.After)
		if err != nil || same {
			return err
		}
	}
	c.changed = append(c.changed, timeline.Difference{Before: was, After: now})
	return nil
}

// created returns when an object was created.
func created(raw []byte) time.Time {
	var o struct {
		Metadata struct{ CreationTimestamp time.Time }
	}
	_ = json.Unmarshal(raw, &o) // zero if the object has none
	return o.Metadata.CreationTimestamp
}

// decode decodes an object and keeps its numbers as written.
func decode(raw []byte) (map[string]any, error) {
	var o map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&o)
	return o, err
}

// limitsOf returns a scope's name without its resource: "/shop?labelSelector=app=web".
func limitsOf(scope string) string {
	return scope[cmp.Or(max(strings.IndexAny(scope, "/?"), 0), len(scope)):]
}
