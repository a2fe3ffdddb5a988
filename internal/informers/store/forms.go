package store

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// An API server may serve a known version of an object in another form: a definition has got a
// default, another release serves more fields, a conversion has changed. No watch shows that, and
// no patch has the difference. So lists compare forms (object.Object.Form) too. If a form differs,
// a gap (content-changed) says so, and a snapshot has the new forms. Until the gap, the position
// has the fingerprint of the former ones: a restart finds the difference again.
//
// A list after lost history keeps the form that was sent, and so does a repeated watch event. They
// only note that there is another one. The next before is then the form that consumers have.

// reform is a change of the forms of last-known objects that a notice announces.
type reform struct {
	loss    Loss
	was     uint64                    // the former fingerprint of all forms
	receipt *checkpoint.Receipt[mark] // of the change
}

// isVersionOf reports whether o is the version last of an object, which may be nil.
func isVersionOf(last, o *object.Object) bool {
	return last != nil && last.Ref.UID == o.Ref.UID && last.ResourceVersion == o.ResourceVersion
}

// differsInForm reports whether o is the version last of an object, in another form.
func differsInForm(last, o *object.Object) bool {
	return isVersionOf(last, o) && last.Form != o.Form && last.Form != 0 && o.Form != 0
}

// noteFormLocked notes whether o is the version last of an object in another form.
func (s *Store) noteFormLocked(last, o *object.Object) {
	s.list.otherForm = s.list.otherForm || differsInForm(last, o)
}

// TakeOtherForm reports whether a list, or a watch, has shown a last-known version in another form
// since the last call.
func (s *Store) TakeOtherForm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.list.otherForm
	s.list.otherForm = false
	return seen
}

// HasInOtherForm reports whether o is a last-known version in another form.
func (s *Store) HasInOtherForm(o *object.Object) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return differsInForm(s.known.objects[o.Ref.Key].last, o)
}

// TakesForms reports whether Reform would take other forms now.
func (s *Store) TakesForms() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.takesFormsLocked()
}

func (s *Store) takesFormsLocked() bool {
	return s.list.at == listed && !s.gone && !s.stopped && s.pos.own && len(s.gate.notices) == 0
}

// Reform replaces last-known versions by the same ones in other forms, and announces that, with the
// span l in which they have changed. It leaves out versions that are no longer the last-known ones.
// It returns false if a list or an announcement is under way: then nothing is done.
func (s *Store) Reform(all []*object.Object, l Loss) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takesFormsLocked() {
		return false
	}
	was := s.known.state.Forms
	changed := false
	for _, o := range all {
		if e := s.known.objects[o.Ref.Key]; differsInForm(e.last, o) {
			s.setLocked(o.Ref.Key, entry{last: o, pending: e.pending})
			changed = true
		}
	}
	if !changed {
		return true
	}
	s.gaugeLocked()
	n := s.FormsChanged(was, l, 0)
	s.noteReformLocked(n.reform)
	s.closeGateLocked()
	s.gate.interrupt()
	s.gate.notices = append(s.gate.notices, n)
	broadcast.Wake(s.wake)
	return true
}

// FormsChanged returns the notice that last-known versions have other forms than consumers know.
// was is the fingerprint of all forms that they know, and to the resourceVersion at which the new
// ones were found; 0: that up to which the store has everything. A snapshot follows, unless none is
// ever sent. The Reason of l does not count.
func (s *Store) FormsChanged(was uint64, l Loss, to uint64) *Notice {
	r := &reform{loss: l, was: was}
	n := &Notice{reform: r}
	n.event = func() *object.StreamEvent {
		s.snaps.due = s.snaps.due || s.o.Snapshots
		return &object.StreamEvent{
			Kind:     object.Gap,
			Resource: s.o.Resource,
			Scope:    s.o.Scope,
			From:     min(r.loss.From, s.known.rv),
			To:       max(to, s.known.rv),
			Since:    s.Past(r.loss.Since),
			Reason:   object.ContentChanged,
		}
	}
	n.done = func() { r.receipt.Acked(nil) }
	return n
}

// noteReformLocked makes the position have the former fingerprint until r is announced.
func (s *Store) noteReformLocked(r *reform) {
	change := mark{rv: s.known.rv, since: s.o.Now().UnixNano()}
	change.state.Forms = r.was ^ s.known.state.Forms
	r.receipt = s.pos.ledger.Add(change)
}

// reformOf returns the change of forms that one of the notices announces, nil if none does.
func reformOf(notices []*Notice) *reform {
	n := slices.IndexFunc(notices, func(n *Notice) bool { return n.reform != nil })
	if n < 0 {
		return nil
	}
	return notices[n].reform
}
