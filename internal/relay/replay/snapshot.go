package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// part is the snapshot of one scope.
type part struct {
	scope   *scope // nil: objects without a scope
	objects []*timeline.Version
}

// parts returns the snapshot at From, in an order that does not change.
func (r *Replay) parts() (parts []part, events int) {
	type of struct {
		cluster  consume.ClusterKey
		resource string
	}
	objects := map[of][]*timeline.Version{}
	for _, v := range r.state.Objects() {
		if r.matches(r.newRead(v)) {
			key := of{v.ClusterKey(), v.Resource}
			objects[key] = append(objects[key], v)
		}
	}
	covered := map[*timeline.Version]bool{}
	scopes := r.state.Scopes()
	for i := range scopes {
		s := &scopes[i]
		p := part{scope: r.scopes[scopeKey{s.ClusterKey(), s.Name}]}
		if p.scope == nil {
			continue
		}
		for _, v := range objects[of{s.ClusterKey(), s.Resource}] {
			if isOf(v, s) {
				p.objects = append(p.objects, v)
				covered[v] = true
			}
		}
		parts = append(parts, p)
		events += len(p.objects) + 2
	}
	var rest part
	for _, v := range r.state.Objects() {
		if !covered[v] && r.matches(r.newRead(v)) {
			rest.objects = append(rest.objects, v)
		}
	}
	return append(parts, rest), events + len(rest.objects)
}

// isOf reports whether an object is of a scope. Its events name the scope if that has selectors.
func isOf(v *timeline.Version, s *certainty.Scope) bool {
	if v.Scope != "" {
		return v.Scope == s.Name
	}
	return !strings.Contains(s.Name, "?") && s.Covers(v.Namespace)
}

// snapshot returns the events of the snapshot. A scope that no snapshot had covered at From has no
// snapshot.completed: the record does not know all of its objects.
func (r *Replay) snapshot(parts []part) iter.Seq2[*consume.Event, error] {
	return func(yield func(*consume.Event, error) bool) {
		for _, p := range parts {
			if p.scope != nil && r.matches(p.scope.last) && !yield(r.newBound(p, object.SnapshotStarted)) {
				return
			}
			for _, v := range p.objects {
				if !yield(r.newRead(v), nil) {
					return
				}
			}
			if p.scope != nil && p.scope.complete && r.matches(p.scope.last) &&
				!yield(r.newBound(p, object.SnapshotCompleted)) {
				return
			}
		}
	}
}

// snapshotID returns the id of the snapshots of a moment and a selection.
func snapshotID(from timeline.Moment, asked []string) string {
	var selection strings.Builder
	for _, words := range asked {
		fmt.Fprintf(&selection, "%q", words)
	}
	hash := sha256.Sum256([]byte(selection.String()))
	return fmt.Sprintf("replay-%s-%x", strings.ReplaceAll(from.String(), "/", "-"), hash[:4])
}

// snapshotTime returns the time of the events of the snapshot.
func (r *Replay) snapshotTime() time.Time {
	if t := r.o.From.Time(); !t.IsZero() {
		return t.UTC()
	}
	return r.reading.Latest.UTC()
}

// newBound returns the start or the end of the snapshot of a scope.
func (r *Replay) newBound(p part, kind object.StreamKind) (*consume.Event, error) {
	last := p.scope.last
	version := strings.TrimPrefix(strings.TrimPrefix(last.APIVersion, last.Group()), "/")
	s := &object.StreamEvent{
		Kind: kind,
		Resource: &object.Resource{
			Group:   last.Group(),
			Version: version,
			Name:    last.Resource,
			Kind:    last.Kind,
		},
		Scope:    last.Scope,
		History:  last.History(),
		Snapshot: r.id,
		Objects:  len(p.objects),
	}
	if p.scope.underWay == "" {
		s.ResourceVersion, _ = strconv.ParseUint(p.scope.floor, 10, 64) // 0: it is no number
	}
	o := &encode.Options{Cluster: r.cluster(last.Cluster), ClusterUID: last.ClusterUID}
	if b := p.scope.began; b != nil && kind == object.SnapshotStarted {
		// the progress of the agent that follows is about the scope
		o.Writer, o.Run = b.Writer, b.Run
		s.Observation = &object.Observation{Since: b.ObservedSince}
		if b.Rules != nil {
			var err error
			s.Observation.Rules, err = json.Marshal(b.Rules)
			if err != nil {
				return nil, err
			}
		}
	}
	return r.encode(o, &object.Delta{Observed: r.snapshotTime().UnixNano(), Stream: s})
}

// encode returns an event of the replay itself.
func (r *Replay) encode(o *encode.Options, d *object.Delta) (*consume.Event, error) {
	var ev encode.Event
	if err := encode.New(*o).Encode(&ev, d); err != nil {
		return nil, err
	}
	return consume.Parse(ev.Body)
}

func (r *Replay) cluster(name string) string { return cmp.Or(r.o.Cluster, name) }

// newRead returns the read of an object.
func (r *Replay) newRead(v *timeline.Version) *consume.Event {
	e := r.newEvent(v)
	e.ID = v.Resource + "/" + v.UID + "/" + v.ResourceVersion + "/r/" + r.id + ending(v.History)
	e.Type = consume.TypePrefix + "object.read"
	e.Op = consume.Read
	e.Time = r.snapshotTime()
	e.DataRef = v.DataRef
	e.Data = &consume.Data{
		Op:              e.Op,
		ResourceVersion: v.ResourceVersion,
		After:           v.After,
		ChangedBy:       v.ChangedBy,
		Snapshot:        r.id,
		Truncated:       v.Truncated,
		DataRef:         v.DataRef,
	}
	if v.After != nil {
		e.DataRef = ""
		e.Data.Truncated = nil
		e.Data.DataRef = ""
	}
	return e
}

// newDeletion returns the deletion of an object that a snapshot has swept.
func (r *Replay) newDeletion(v *timeline.Version) *consume.Event {
	e := r.newEvent(v)
	e.ID = v.Resource + "/" + v.UID + "/d" + ending(v.History)
	e.Type = consume.TypePrefix + "object.deleted"
	e.Op = consume.Deleted
	e.Time = v.Time
	e.Data = &consume.Data{
		Op:              e.Op,
		ResourceVersion: v.ResourceVersion,
		After:           []byte("null"),
		Inferred:        true,
	}
	return e
}

// newEvent returns an event with the attributes that all events of an object have.
func (r *Replay) newEvent(v *timeline.Version) *consume.Event {
	plural, group, _ := strings.Cut(v.Resource, ".")
	path := "/api/" + v.APIVersion
	if group != "" {
		path = "/apis/" + v.APIVersion
	}
	if v.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(v.Namespace)
	}
	cluster := r.cluster(v.Cluster)
	e := &consume.Event{
		Source:          v.Source,
		Subject:         path + "/" + plural + "/" + url.PathEscape(v.Name),
		DataContentType: "application/json",
		DataSchema:      "https://kubecdc.dev/schema/object/v1",
		Cluster:         cluster,
		ClusterUID:      v.ClusterUID,
		APIVersion:      v.APIVersion,
		Kind:            v.Kind,
		Resource:        plural,
		Namespace:       v.Namespace,
		Name:            v.Name,
		UID:             v.UID,
		ResourceVersion: v.ResourceVersion,
		Scope:           v.Scope,
		PartitionKey: strings.Join(
			[]string{cluster, cmp.Or(group, "core"), plural, cmp.Or(v.Namespace, consume.NoNamespace), v.Name}, "/"),
	}
	if r.o.Cluster != "" {
		e.Source = sourceOf(cluster)
	}
	if n, err := strconv.ParseUint(v.ResourceVersion, 10, 64); err == nil {
		e.Sequence = fmt.Sprintf("%020d", n)
	}
	return e
}

// ending is the end of the id of an event in a history.
func ending(history uint32) string {
	if history == 0 {
		return ""
	}
	return fmt.Sprintf("/h%d", history)
}
