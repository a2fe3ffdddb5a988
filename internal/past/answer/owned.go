package answer

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	// maxOwners is how many steps lead from an object to the one that owns it in the end.
	maxOwners = 8
	// maxObjects is of how many objects the owners are kept, about 500 bytes each.
	maxObjects = 1 << 20
)

// errManyObjects is the error of a question about the owners of too many objects.
var errManyObjects = errors.New(
	"--with-events: there are too many objects whose owners have to be known: name a namespace (-n), " +
		"or ask for a shorter span (--since)")

// A Deployment owns ReplicaSets, and they own Pods: that is what ownerReferences in the Pods and
// ReplicaSets say. So the objects that one owns are found from below. An ownership has the owners
// of all objects that may be owned by the objects of a question, the roots, at each time of the
// record.
//
// It also knows what it does not know: an object that is not in the record may be owned by a root.
type ownership struct {
	asked   *record.Selection // the objects whose owners were read
	isRoot  func(*timeline.Version) bool
	objects map[objectOfKind]*ownedObject
	names   map[nameKey][]namedObject
	kinds   map[kindKey]string // the resource of each kind that was read
}

// uidKey identifies an object of a cluster.
type uidKey struct {
	cluster consume.ClusterKey
	uid     string
}

// objectOfKind identifies an object. Those of two kinds may have the same UID.
type objectOfKind struct {
	uidKey

	kind string
}

type nameKey struct {
	cluster               consume.ClusterKey
	kind, namespace, name string
}

type kindKey struct{ group, kind string }

// reference is one object's reference to another one: of an ownerReference, or of an Event to what
// it is about.
type reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	FieldPath  string `json:"fieldPath"`
}

func (r *reference) group() string {
	group, _, hasGroup := strings.Cut(r.APIVersion, "/")
	if !hasGroup {
		return ""
	}
	return group
}

type ownedObject struct {
	resource, namespace, name, uid string

	isRoot bool
	owners []ownersSince // in the order of the record
}

// ownersSince are the owners of an object from a time on.
type ownersSince struct {
	time   time.Time
	owners []reference
}

// namedObject is the object that has a name from a time on.
type namedObject struct {
	time       time.Time
	group, uid string
}

func newOwnership(asked *record.Selection, isRoot func(*timeline.Version) bool) *ownership {
	return &ownership{
		asked:   asked,
		isRoot:  isRoot,
		objects: map[objectOfKind]*ownedObject{},
		names:   map[nameKey][]namedObject{},
		kinds:   map[kindKey]string{},
	}
}

// noteVersion notes a version of an object, observed at a time. It is called in the order of the
// record.
func (o *ownership) noteVersion(v *timeline.Version, at time.Time) error {
	key := objectOfKind{uidKey{v.ClusterKey(), v.UID}, v.Kind}
	known := o.objects[key]
	if known == nil {
		if len(o.objects) >= maxObjects {
			return errManyObjects
		}
		key.cluster = consume.ClusterKey{Source: strings.Clone(key.cluster.Source), UID: strings.Clone(key.cluster.UID)}
		key.uid, key.kind = strings.Clone(key.uid), strings.Clone(key.kind)
		kind := kindKey{group: (&reference{APIVersion: v.APIVersion}).group(), kind: v.Kind}
		if o.kinds[kind] == "" {
			o.kinds[kindKey{strings.Clone(kind.group), strings.Clone(kind.kind)}] = strings.Clone(v.Resource)
		}
		known = &ownedObject{
			resource:  o.kinds[kind],
			namespace: strings.Clone(v.Namespace),
			name:      strings.Clone(v.Name),
			uid:       key.uid,
		}
		o.objects[key] = known
		named := nameKey{key.cluster, key.kind, known.namespace, known.name}
		o.names[named] = append(o.names[named], namedObject{at, strings.Clone(kind.group), key.uid})
	}
	known.isRoot = known.isRoot || o.isRoot(v)
	object := v.After
	if object == nil && known.owners == nil {
		object = v.Before
	}
	if object == nil {
		return nil
	}
	var meta struct {
		Metadata struct {
			OwnerReferences []reference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(object, &meta) // impossible to fail: it came from JSON
	owners := meta.Metadata.OwnerReferences
	last := len(known.owners) - 1
	if last < 0 || !slices.Equal(known.owners[last].owners, owners) {
		known.owners = append(known.owners, ownersSince{at, owners})
	}
	return nil
}

// placement says whether an object is a root, or owned by one.
type placement int

const (
	elsewhere placement = iota
	owned
	// unplaced: the record does not have the object, or one between it and a root.
	unplaced
)

// place returns the object that a reference of an Event names, nil if the record does not have it,
// and whether it was owned by a root at a time.
func (o *ownership) place(cluster consume.ClusterKey, r *reference, at time.Time) (*ownedObject, placement) {
	object := o.find(cluster, r, at)
	switch {
	case object == nil && o.isAsked(r, r.Namespace):
		return nil, unplaced
	case object == nil:
		return nil, elsewhere
	}
	where := elsewhere
	seen := map[reference]bool{}
	level := []*ownedObject{object}
	for step := 0; step < maxOwners && len(level) > 0; step++ {
		var next []*ownedObject
		for _, below := range level {
			if below.isRoot {
				return object, owned
			}
			if below.owners == nil { // the record lacks its content
				where = unplaced
			}
			for _, owner := range below.ownersAt(at) {
				if seen[owner] {
					continue
				}
				seen[owner] = true
				above := o.objects[objectOfKind{uidKey{cluster, owner.UID}, owner.Kind}]
				if above != nil {
					next = append(next, above)
				} else if o.isAsked(&owner, below.namespace) {
					where = unplaced
				}
			}
		}
		level = next
	}
	return object, where
}

// find returns the object that a reference of an Event names. A kubelet writes the name of its Node
// as the uid, and some programs write none.
func (o *ownership) find(cluster consume.ClusterKey, r *reference, at time.Time) *ownedObject {
	if object := o.objects[objectOfKind{uidKey{cluster, r.UID}, r.Kind}]; object != nil {
		return object
	}
	if r.UID != "" && r.UID != r.Name {
		return nil
	}
	var found *ownedObject
	for _, n := range o.names[nameKey{cluster, r.Kind, r.Namespace, r.Name}] {
		isOf := r.APIVersion == "" || r.group() == n.group
		if isOf && (found == nil || !n.time.After(at)) {
			found = o.objects[objectOfKind{uidKey{cluster, n.uid}, r.Kind}]
		}
	}
	return found
}

// isAsked reports whether the owners of an object would be known if the record had it.
func (o *ownership) isAsked(r *reference, namespace string) bool {
	if r.Kind == "Node" {
		namespace = "" // static Pods belong to one
	}
	for _, k := range kinds.Named(r.Kind) {
		if r.APIVersion == "" || k.Group == r.group() {
			return o.asked.TakesObject(k.String(), namespace, r.Name)
		}
	}
	if resource := o.kinds[kindKey{r.group(), r.Kind}]; resource != "" {
		return o.asked.TakesObject(resource, namespace, r.Name)
	}
	return o.asked.Resources == nil
}

// ownersAt returns the owners at a time. An Event may be observed a little before the object that
// it is about.
func (o *ownedObject) ownersAt(at time.Time) []reference {
	var found []reference
	for i, since := range o.owners {
		if i == 0 || !since.time.After(at) {
			found = since.owners
		}
	}
	return found
}

// dependents returns the resources whose objects may be owned by objects of a resource of
// Kubernetes, directly or not, and have Events. ok is false for other resources, which may own any
// object.
func dependents(r *record.Resource) (resources []record.Resource, ok bool) {
	isKind := slices.ContainsFunc(kinds.Of(r.Plural), func(k kinds.Kind) bool { return k.Group == r.Group })
	if r.IsCustom() || !isKind {
		return nil, false
	}
	core := func(plurals ...string) (out []record.Resource) {
		for _, plural := range plurals {
			out = append(out, record.Resource{Plural: plural})
		}
		return out
	}
	pods := core("pods", "persistentvolumeclaims")
	switch r.String() {
	case "deployments.apps":
		return append(pods, record.Resource{Group: "apps", Plural: "replicasets"}), true
	case "cronjobs.batch":
		return append(pods, record.Resource{Group: "batch", Plural: "jobs"}), true
	case "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "replicationcontrollers", "jobs.batch":
		return pods, true
	case "pods":
		return core("persistentvolumeclaims"), true // of ephemeral volumes
	}
	return nil, true
}

// owners reads who owns which objects, as far as that leads to the objects of the question. It also
// returns the namespaces that have the Events about these; nil: the namespaces of the question.
func (q *Question) owners(ctx context.Context, s *Span) (*ownership, []string, error) {
	namespaces, err := q.namespaces(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	isRoot := func(v *timeline.Version) bool {
		return q.Wanted.TakesObject(v.Resource, v.Namespace, v.Name) && (q.hasLabels(v.Before) || q.hasLabels(v.After))
	}
	o := newOwnership(q.ownable(namespaces), isRoot)
	err = q.During(ctx, func(ctx context.Context) error {
		if err := q.ownersAt(ctx, s, o); err != nil {
			return err
		}
		_, _, err := q.Record.Versions(ctx, o.asked, s.Since, s.Until,
			func(v *timeline.Version, e *consume.Event) error {
				if v == nil {
					return nil
				}
				return o.noteVersion(v, e.Time)
			})
		return err
	})
	if err != nil || q.Wanted.LiteralNamespace() != "" || q.Wanted.Resources == nil {
		return o, nil, err
	}
	found := map[string]bool{}
	for _, object := range o.objects {
		if object.isRoot {
			found[eventsIn(object.namespace)] = true
		}
	}
	return o, few(found), nil
}

// ownersAt notes who owns what at the beginning of a span, if Versions reads only the changes in
// it.
func (q *Question) ownersAt(ctx context.Context, s *Span, o *ownership) error {
	if !q.Record.HasSeveralLogs() || q.Record.Since.IsZero() {
		return nil
	}
	states, _, err := q.Record.States(ctx, o.asked, *s.Since)
	if err != nil {
		return err
	}
	for _, v := range states[0].Objects() {
		if err := o.noteVersion(v, v.Time); err != nil {
			return err
		}
	}
	return nil
}

// ownable returns the selection of the objects of the question and of those that they may own.
func (q *Question) ownable(namespaces []string) *record.Selection {
	inNamespaces := slices.DeleteFunc(slices.Clone(namespaces), func(name string) bool { return name == "" })
	isClusterScoped := len(namespaces) > 0 && len(inNamespaces) == 0
	if q.Wanted.Resources == nil || isClusterScoped { // the objects that these own may be in any namespace
		return q.Wanted
	}
	var more []record.Resource
	isAny := false
	for i := range q.Wanted.Resources {
		resources, ok := dependents(&q.Wanted.Resources[i])
		isAny = isAny || !ok
		for _, r := range resources {
			isWhole := func(other record.Resource) bool { return other.String() == r.String() && other.Names == nil }
			if !slices.ContainsFunc(more, isWhole) && !slices.ContainsFunc(q.Wanted.Resources, isWhole) {
				r.Namespaces = inNamespaces
				more = append(more, r)
			}
		}
	}
	if !isAny {
		return q.Wanted.With(more...)
	}
	all := *q.Wanted
	all.Resources = nil
	if len(inNamespaces) == 1 {
		all.Namespace = inNamespaces[0]
	}
	return &all
}

// maxNamespaces is for how many namespaces the events are read one by one, and not for all.
const maxNamespaces = 16

// namespaces returns the namespaces of the objects of a question that does not name one, if the
// record can be asked for namespaces; else nil.
func (q *Question) namespaces(ctx context.Context, s *Span) ([]string, error) {
	if q.Wanted.LiteralNamespace() != "" || q.Wanted.Resources == nil || !q.Record.Seeks() {
		return nil, nil
	}
	found := map[string]bool{}
	err := q.During(ctx, func(ctx context.Context) error {
		_, _, err := q.Record.Versions(ctx, q.Wanted, s.Since, s.Until,
			func(v *timeline.Version, _ *consume.Event) error {
				if v != nil && len(found) <= maxNamespaces {
					found[strings.Clone(v.Namespace)] = true
				}
				return nil
			})
		return err
	})
	return few(found), err
}

// few returns the names, sorted; nil if there are none or too many.
func few(names map[string]bool) []string {
	if len(names) > maxNamespaces {
		return nil
	}
	var out []string
	for name := range names {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// eventsIn returns the namespace that has the Events about an object in a namespace.
func eventsIn(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}
