package consume

import "strings"

// letter applies what the id of a dead letter says of the object that it names. The object is gone if that is its deletion;
// else it exists, and a sweep spares it: the snapshot has found it, or it has changed since, and only the event is missing.
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
	r.bury(gone[0].UID, at, true, o.part)
	return gone
}

// rewind forgets the versions of a scope: etcd was restored, or the cluster made anew, by somebody whom no agent has seen,
// and what had been deleted may be back. The versions of other scopes go too: what this one holds may have belonged to one
// of them, under an earlier configuration.
func (r *resource) rewind(name string) {
	for _, o := range r.live {
		if o.in(name) {
			o.at = point{}
		}
	}
	clear(r.dead)
	for _, s := range r.scopes {
		s.version, s.floor, s.reached = point{}, point{}, point{}
		s.progress = Progress{Time: s.progress.Time}
	}
}
