package consume

import (
	"strings"
	"time"
)

// letter applies the id of a dead letter to the object that it names. If the dead letter is the
// object's deletion, the object is gone. Otherwise it exists, and a sweep keeps it: the snapshot
// has found it, or it has changed since, and only the event is missing.
func (r *resource) letter(key resourceKey, id string, at point, clock uint64) []Object {
	_, rest, _ := strings.Cut(id, "/")
	uid, version, _ := strings.Cut(rest, "/")
	o := r.live[uid]
	switch {
	case o == nil, at.history < o.at.history:
		return nil
	case version != "d" && !strings.HasPrefix(version, "d/"):
		o.touched = max(o.touched, clock)
		return nil
	}
	if at.compare(o.at) < 0 {
		at = o.at
	}
	gone := []Object{key.object(strings.Clone(uid), o.name)}
	r.retire(gone[0].UID, at, true, o.part)
	return gone
}

// rewind removes the versions of a scope: etcd was restored while no agent watched, and deleted
// objects may exist again. The versions of other scopes are removed too: with an earlier
// configuration, objects of this scope may have belonged to one of them.
func (r *resource) rewind(name string) {
	for _, o := range r.live {
		if o.in(name) {
			o.at = point{}
		}
	}
	clear(r.dead)
	for _, s := range r.scopes {
		s.version = point{}
		s.floor = point{}
		s.reached = point{}
		s.progress.To = time.Time{}
		s.progress.ResourceVersion = ""
		s.progress.History = 0
	}
}
