package timeline_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// past has the versions and objects of a record up to a moment, by the naive model.
type past struct {
	versions   []*timeline.Version          // in the order of the record
	live, left map[string]*timeline.Version // by uid: objects that exist, and those that left and did not come back
	skipped    map[string]int               // by scope
}

// naive reads the whole record, and follows the contract literally.
func naive(log []*consume.Event, m timeline.Moment) *past {
	p := &past{live: map[string]*timeline.Version{}, left: map[string]*timeline.Version{}, skipped: map[string]int{}}
	highest, seen := map[string]string{}, map[string]bool{}
	deleted := map[string]bool{}   // by uid and history: an object ends once, whatever says so first
	changesOn := map[string]bool{} // by uid: the object has an event after the moment
	for n, e := range log {
		end := fmt.Sprint(e.UID, " ", e.History())
		hasName := func(o *timeline.Version) bool {
			return o.UID != e.UID && o.Namespace == e.Namespace && o.Name == e.Name
		}
		hasLater := func() bool { // another object has the name now
			for uid, o := range p.live {
				if hasName(o) && highest[uid] > sequence(e) {
					return true
				}
			}
			return false
		}
		switch {
		case e.DeadLetterReason != "" || seen[e.ID]:
			continue
		case !m.Includes(e):
			// The first event after the moment counts the versions of an existing object that were
			// withheld since the last one before it.
			if e.Data != nil && p.live[e.UID] != nil && sequence(e) > highest[e.UID] && !changesOn[e.UID] {
				changesOn[e.UID] = true
				p.skipped[scopeOf(e.Namespace)] += e.Data.Skipped
			}
			continue
		case e.Type == consume.TypeSnapshotCompleted:
			there := shown(log, n, m)
			p.end(e, e.Stream.ResourceVersion, func(o *timeline.Version) bool {
				return scopeOf(o.Namespace) == e.Scope && !there[o.UID]
			})
		case e.Stream != nil && e.Stream.DeadLetter != "":
			uid := uidOf(e.Stream.DeadLetter)
			if p.live[uid] != nil && strings.Contains(e.Stream.DeadLetter, uid+"/d") {
				p.end(e, e.Stream.ToResourceVersion, func(o *timeline.Version) bool { return o.UID == uid })
				deleted[fmt.Sprint(uid, " ", e.History())] = true
				highest[uid] = max(highest[uid], sequence(e))
			}
		case e.Data == nil:
		case e.Op == consume.Deleted || e.Op == consume.Left:
			isUnknown := p.live[e.UID] == nil
			if sequence(e) < highest[e.UID] || e.Op == consume.Deleted && deleted[end] || isUnknown && hasLater() {
				break
			}
			v := p.add(e)
			delete(p.live, e.UID)
			delete(p.left, e.UID)
			highest[e.UID] = sequence(e)
			if e.Op == consume.Left {
				maps.DeleteFunc(p.left, func(_ string, o *timeline.Version) bool { return hasName(o) })
				p.left[e.UID] = v
			} else {
				deleted[end] = true
			}
		case sequence(e) == highest[e.UID] && p.live[e.UID] != nil && isReformed(log[:n], e, m):
			v := p.add(e)
			v.Again = true
			p.live[e.UID] = v
		case sequence(e) > highest[e.UID]:
			if hasLater() {
				break
			}
			for _, uid := range p.end(e, e.ResourceVersion, hasName) {
				deleted[fmt.Sprint(uid, " ", e.History())] = true
			}
			maps.DeleteFunc(p.left, func(uid string, o *timeline.Version) bool { return uid == e.UID || hasName(o) })
			p.live[e.UID], highest[e.UID] = p.add(e), sequence(e)
		}
		seen[e.ID] = true
	}
	return p
}

// isReformed reports whether a read, after the records of a log, shows the known version of an
// object in another form. It is the first read of a snapshot that started after a gap of reason
// content-changed, and no such snapshot was completed.
func isReformed(log []*consume.Event, e *consume.Event, m timeline.Moment) bool {
	if e.Op != consume.Read {
		return false
	}
	gap := -1
	start := -1
	id := ""
	touched := false
	seen := map[string]bool{}
	for n, o := range log {
		isCopy := seen[o.ID]
		seen[o.ID] = true
		isChange := o.Data != nil && o.UID == e.UID && o.Op != consume.Read
		switch {
		case isCopy || !m.Includes(o) || o.DeadLetterReason != "":
		case isChange && start >= 0 && sequence(o) > sequence(log[start]):
			touched = true
		case o.Scope != scopeOf(e.Namespace) || o.Stream == nil:
		case o.Type == consume.TypeGap && o.Stream.Reason == consume.ReasonContentChanged:
			gap = n
		case o.Type == consume.TypeSnapshotStarted:
			start = n
			id = o.Stream.Snapshot
			touched = false
		case o.Type == consume.TypeSnapshotCompleted && o.Stream.Snapshot == id:
			if start > gap {
				gap = -1
			}
			id = ""
		}
	}
	return gap >= 0 && start > gap && id == e.Data.Snapshot && !touched
}

// shown returns the objects that a snapshot shows to exist at a moment. The nth record completes
// the snapshot.
func shown(log []*consume.Event, n int, m timeline.Moment) map[string]bool {
	e, there := log[n], map[string]bool{}
	start := slices.IndexFunc(log, func(s *consume.Event) bool {
		return s.Type == consume.TypeSnapshotStarted && s.Stream.Snapshot == e.Stream.Snapshot
	})
	for k, o := range log[start:n] {
		switch {
		case o.Data == nil || o.DeadLetterReason != "":
		case o.Op == consume.Read:
			there[o.UID] = there[o.UID] || o.Data.Snapshot == e.Stream.Snapshot
		case m.Includes(o):
			there[o.UID] = there[o.UID] || sequence(o) > sequence(e)
		default: // it existed if its previous version did
			was := o.Data.PreviousResourceVersion
			there[o.UID] = there[o.UID] || was != "" && o.History() == e.History() && number(was) <= number(e.Sequence)
		}
		isCopy := slices.ContainsFunc(log[:start+k], func(earlier *consume.Event) bool { return earlier.ID == o.ID })
		if o.Stream != nil && o.Stream.DeadLetter != "" && !isCopy && m.Includes(o) {
			there[uidOf(o.Stream.DeadLetter)] = true
		}
	}
	return there
}

// add adds the version that an event of an object states.
func (p *past) add(e *consume.Event) *timeline.Version {
	d := e.Data
	v := &timeline.Version{
		Object: consume.Object{
			Source:    source,
			Resource:  "pods",
			Namespace: e.Namespace,
			Name:      e.Name,
			UID:       e.UID,
		},
		APIVersion:              "v1",
		Kind:                    "Pod",
		Scope:                   e.Scope,
		ID:                      e.ID,
		Op:                      e.Op,
		Time:                    e.Time,
		ResourceVersion:         e.ResourceVersion,
		History:                 e.History(),
		Inferred:                d.Inferred,
		Skipped:                 d.Skipped,
		After:                   d.After,
		Truncated:               d.Truncated,
		DataRef:                 e.DataRef,
		Before:                  d.Before,
		PreviousResourceVersion: d.PreviousResourceVersion,
	}
	p.skipped[scopeOf(e.Namespace)] += d.Skipped
	p.versions = append(p.versions, v)
	return v
}

// end adds the ends of the objects that e shows to be gone by a resourceVersion, sorted by
// namespace and name. It returns their uids.
func (p *past) end(e *consume.Event, rv string, gone func(*timeline.Version) bool) (uids []string) {
	for _, o := range slices.SortedFunc(maps.Values(p.live), func(a, b *timeline.Version) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}) {
		if !gone(o) {
			continue
		}
		p.versions = append(p.versions, &timeline.Version{
			Object:          o.Object,
			APIVersion:      "v1",
			Kind:            "Pod",
			Op:              consume.Deleted,
			Time:            e.Time,
			ResourceVersion: rv,
			History:         e.History(),
			Inferred:        true,
		})
		uids = append(uids, o.UID)
		delete(p.live, o.UID)
	}
	return uids
}

// counts returns the counts of each scope.
func (p *past) counts() map[string]string {
	out := map[string]string{}
	for _, scope := range []string{plain, labelled} {
		left, redacted := 0, 0
		for _, v := range p.left {
			if scopeOf(v.Namespace) == scope {
				left++
			}
		}
		for _, v := range p.live {
			var o struct{ Data struct{ Key string } }
			if v.After != nil && json.Unmarshal(v.After, &o) != nil {
				panic(string(v.After))
			}
			if scopeOf(v.Namespace) == scope && strings.HasPrefix(o.Data.Key, "hmac-sha256:") {
				redacted++
			}
		}
		out[scope] = fmt.Sprintf("skipped %d, left %d, redacted %d", p.skipped[scope], left, redacted)
	}
	return out
}

// differences returns the objects that differ at another moment, sorted by namespace, name and uid.
func (p *past) differences(to *past) (out []string) {
	for uid, v := range p.live {
		switch now := to.live[uid]; {
		case now == nil:
			out = append(out, difference(v, to.left[uid]))
		case now.ResourceVersion != v.ResourceVersion || now.History != v.History,
			(now.Again || v.Again) && string(now.After) != string(v.After):
			out = append(out, difference(v, now))
		}
	}
	for uid, v := range to.live {
		if p.live[uid] == nil {
			out = append(out, difference(nil, v))
		}
	}
	slices.Sort(out)
	return out
}

func difference(before, after *timeline.Version) string {
	var object, versions string
	for _, v := range []*timeline.Version{before, after} {
		if v == nil {
			versions += " none"
			continue
		}
		object = fmt.Sprintf("%s/%s/%s", v.Namespace, v.Name, v.UID)
		versions += fmt.Sprintf(" %s %s %s", v.Op, v.ID, v.After)
	}
	return object + versions
}

func sequence(e *consume.Event) string { return fmt.Sprintf("%010d %s", e.History(), e.Sequence) }

func uidOf(id string) string { return strings.Split(id, "/")[1] }
