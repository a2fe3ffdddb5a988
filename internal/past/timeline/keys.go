package timeline

import (
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The keys of maps. The texts of a key may share the memory of an event, which is much larger. A
// map that outlives the event needs a clone. To spare a clone for each event, callers assign to a
// map only if the key is new: an assignment to a known key replaces the text of the key too.

// scopeKey identifies a scope.
type scopeKey struct {
	cluster consume.ClusterKey
	name    string
}

func scopeOf(e *consume.Event) scopeKey { return scopeKey{e.ClusterKey(), e.Scope} }

func (k scopeKey) clone() scopeKey { return scopeKey{cloneCluster(k.cluster), strings.Clone(k.name)} }

// objectKey identifies an object. Objects of two resources may have the same UID, and so may those
// of two clusters.
type objectKey struct {
	cluster       consume.ClusterKey
	resource, uid string
}

func (v *Version) key() objectKey { return objectKey{v.ClusterKey(), v.Resource, v.UID} }

// objectOf returns the key of the object of an event.
func objectOf(e *consume.Event) objectKey {
	return objectKey{e.ClusterKey(), e.GroupResource(), e.UID}
}

func (k objectKey) clone() objectKey {
	return objectKey{cloneCluster(k.cluster), strings.Clone(k.resource), strings.Clone(k.uid)}
}

// snapshotKey identifies a snapshot.
type snapshotKey struct {
	cluster consume.ClusterKey
	id      string
}

func (k snapshotKey) clone() snapshotKey {
	return snapshotKey{cloneCluster(k.cluster), strings.Clone(k.id)}
}

// deadLetterKey identifies an event that is among the dead letters of a cluster.
type deadLetterKey struct {
	cluster consume.ClusterKey
	id      string
}

func (k deadLetterKey) clone() deadLetterKey {
	return deadLetterKey{cloneCluster(k.cluster), strings.Clone(k.id)}
}

// writerKey identifies an agent, across its restarts.
type writerKey struct {
	cluster consume.ClusterKey
	name    string
}

func (k writerKey) clone() writerKey {
	return writerKey{cloneCluster(k.cluster), strings.Clone(k.name)}
}

// entryKey identifies the entry of a progress that is about all scopes of a resource without an
// entry of their own.
type entryKey struct {
	writerKey

	resource string
}

func (k entryKey) clone() entryKey { return entryKey{k.writerKey.clone(), strings.Clone(k.resource)} }

// place is the part of an object's identity that determines its scope.
type place struct {
	cluster                    consume.ClusterKey
	resource, scope, namespace string
}

func placeOf(e *consume.Event) place {
	return place{e.ClusterKey(), e.GroupResource(), e.Scope, e.Namespace}
}

func (p place) clone() place {
	return place{
		cloneCluster(p.cluster), strings.Clone(p.resource), strings.Clone(p.scope), strings.Clone(p.namespace),
	}
}

// isIn reports whether objects of the place belong to a scope. An event names its scope if that has
// selectors.
func (p place) isIn(s *certainty.Scope) bool {
	if p.cluster != s.ClusterKey() || p.resource != s.Resource {
		return false
	}
	if p.scope != "" {
		return p.scope == s.Name
	}
	return !strings.Contains(s.Name, "?") && s.Covers(p.namespace)
}

// cloneText is strings.Clone for a text of a type of its own.
func cloneText[T ~string](text T) T { return T(strings.Clone(string(text))) }

func cloneCluster(k consume.ClusterKey) consume.ClusterKey {
	return consume.ClusterKey{Source: strings.Clone(k.Source), UID: strings.Clone(k.UID)}
}
