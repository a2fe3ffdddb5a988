package informers

import (
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/pause"
)

// versionEvery is the interval of requests for the version of the API server.
const versionEvery = time.Minute

// followVersion asks for the version of the API server until ctx ends. Another one may serve known
// versions of objects in another form, and may have other etcds.
func (m *Manager) followVersion(ctx context.Context) {
	last := ""
	for again := true; again; again = pause.For(ctx, versionEvery) == nil {
		version, err := m.client.ServerVersion(ctx)
		now := version.Release
		if err != nil { // the last one holds for progress
			m.o.Log.Debug("cannot read the version of the API server, retrying", "err", err, "retry_in", versionEvery)
		} else {
			m.sharing.noteVersion(version.Git)
		}
		if now != "" && last != "" && now != last {
			m.o.Log.Info("the API server has another version: comparing the contents of all objects", "was", last,
				"version", now)
		}
		m.noteVersion(last, now)
		if now != "" {
			last = now
		}
	}
}

// noteVersion passes to each informer whether the version of the API server has changed. "": it is
// not known.
func (m *Manager) noteVersion(last, now string) {
	seen := m.extensions.SeenAt()
	for _, i := range m.capturing() {
		isKnown := now != "" && last != ""
		if isKnown && now != last {
			i.NoteContentChange()
			broadcast.Wake(m.forms)
		}
		if i.NoteOtherForms() {
			broadcast.Wake(m.forms)
		}
		if isKnown && now == last {
			i.NoteSameServer(seen)
		}
	}
}

// capturing returns the informers whose objects are captured.
func (m *Manager) capturing() []*running {
	return slices.DeleteFunc(m.observing(), func(r *running) bool { return r.Spec().Internal })
}

// compareForms compares the scopes that are due until ctx ends, one after the other: after an
// upgrade of the API server, all are due at once.
func (m *Manager) compareForms(ctx context.Context) {
	for {
		var next time.Time
		for _, i := range m.capturing() {
			if at, is := i.FormsDue(); is && !at.After(time.Now()) {
				i.CompareForms(ctx)
			}
			if at, is := i.FormsDue(); is && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.forms:
		case <-due:
		}
	}
}
