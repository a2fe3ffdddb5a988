package timeline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// State has the objects of a moment: the last version of each, of those that the moment includes.
type State struct {
	fold    *Fold
	objects map[objectKey]*Version
	left    map[consume.Object]*Version // by name: without the uid
	interns map[string]string
}

// NewState returns the State of a moment, to which events are to be added.
func NewState(m Moment, o Options) *State {
	return &State{
		fold:    NewFold(m, o),
		objects: map[objectKey]*Version{},
		left:    map[consume.Object]*Version{},
		interns: map[string]string{},
	}
}

// Moment returns the moment of the State.
func (s *State) Moment() Moment { return s.fold.moment }

// Add applies the next event of a log.
func (s *State) Add(e *consume.Event) { States{s}.Add(e) }

// Done reports whether the record has passed the moment, as Fold.Done.
func (s *State) Done() bool { return s.fold.Done() }

// DoneIn reports whether a log has passed the moment, as Fold.DoneIn.
func (s *State) DoneIn(log consume.Log) bool { return s.fold.DoneIn(log) }

// NoteLog notes a log, as Fold.NoteLog.
func (s *State) NoteLog(log consume.Log) { s.fold.NoteLog(log) }

// DropLog drops a log, as Fold.DropLog.
func (s *State) DropLog(log consume.Log) { s.fold.DropLog(log) }

// Len returns the number of objects.
func (s *State) Len() int { return len(s.objects) }

// Objects returns the last version of each object that exists, sorted by cluster, resource,
// namespace and name. They must not be changed.
func (s *State) Objects() []*Version { return sorted(s.objects) }

// Left returns the objects that left the selection and did not come back, in the same order. The
// version of each has Op Left. Such an object may still exist: no other one has its name.
func (s *State) Left() []*Version { return sorted(s.left) }

// APIServerVersion returns the version of the API server, as Fold.APIServerVersion.
func (s *State) APIServerVersion() string { return s.fold.APIServerVersion() }

// Scopes says how certain the State is, as Fold.Scopes.
func (s *State) Scopes() []certainty.Scope { return s.fold.Scopes() }

// States are States of several moments that are filled by one pass over the record, and share the
// objects that are in several of them.
type States []*State

// Add applies the next event of a log.
func (all States) Add(e *consume.Event) {
	var shared *Version
	for _, s := range all {
		for _, v := range s.fold.Add(e) {
			key := v.key()
			if v.Gone() {
				delete(s.objects, key)
				if s.leftOf(v) != nil {
					delete(s.left, nameOf(v))
				}
				if v.Op == consume.Left {
					c := v.compact(s.intern)
					s.left[nameOf(c)] = c
				}
				continue
			}
			if shared == nil { // an event adds one version that is not the end of an object
				shared = v.compact(s.intern)
			}
			delete(s.left, nameOf(v))        // also another object: a name belongs to one at a time
			s.objects[shared.key()] = shared // its texts are copies
		}
	}
}

// Done reports whether the record has passed all moments.
func (all States) Done() bool {
	return !slices.ContainsFunc(all, func(s *State) bool { return !s.Done() })
}

// leftOf returns the version with which the object of v left the selection. It returns nil if the
// object did not leave, or is known not to exist.
func (s *State) leftOf(v *Version) *Version {
	if left := s.left[nameOf(v)]; left != nil && left.UID == v.UID {
		return left
	}
	return nil
}

// nameOf returns the name of an object: all of its identity but the uid.
func nameOf(v *Version) consume.Object {
	o := v.Object
	o.UID = ""
	return o
}

// intern returns a copy of a text that all objects of the State share.
func (s *State) intern(text string) string {
	if same, ok := s.interns[text]; ok {
		return same
	}
	text = strings.Clone(text)
	s.interns[text] = text
	return text
}

func sorted[K comparable](all map[K]*Version) []*Version {
	out := make([]*Version, 0, len(all))
	for _, v := range all {
		out = append(out, v)
	}
	slices.SortFunc(out, compareVersions)
	return out
}

func compareVersions(a, b *Version) int {
	return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.ClusterUID, b.ClusterUID),
		strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// Redacted reports whether values of the object were removed or replaced, as the event says.
// Earlier agents do not say it. Then these count: an object that shows a hash, a Secret without
// values, and a release that Helm stores in a ConfigMap without its content.
func (v *Version) Redacted() bool {
	if v.After != nil && v.SaysRedacted != nil {
		return *v.SaysRedacted
	}
	if bytes.Contains(v.After, []byte(`"`+object.RedactedPrefix)) {
		return true
	}
	isRelease := v.Resource == "configmaps" && strings.HasPrefix(v.Name, "sh.helm.release.v1.")
	if v.After == nil || v.Resource != "secrets" && !isRelease {
		return false
	}
	var values struct{ Data, StringData map[string]json.RawMessage }
	_ = json.Unmarshal(v.After, &values) // impossible to fail: it came from JSON
	if isRelease {
		return values.Data["release"] == nil
	}
	return values.Data == nil && values.StringData == nil
}
