package informer

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// contentDelay is the delay of a comparison after a change: each API server learns of a new
	// definition by itself.
	contentDelay = 20 * time.Second
	// contentEvery is the least time between two comparisons of a scope. While two API servers
	// answer differently, each comparison may find another form.
	contentEvery = time.Hour
	// contentRetry is the delay after a comparison that failed.
	contentRetry = time.Minute
)

// content decides when to compare the forms of the last-known objects with a list. After a change
// of the definition, or of the version of the API server, it may serve a known version in another
// form. No watch shows that. So a comparison follows each such change:
//
//	change ──20 s──▶ comparison ──an hour──▶ the next one, if there was another change
type content struct {
	mu       sync.Mutex
	last     knownForm // of the last comparison, or of the first list
	sure     knownForm // until then, nothing was seen that can change forms
	next     knownForm // replaces sure if a later answer shows that the API server is still the same one
	since    knownForm // the earliest moment at which forms may have changed, if changed is not zero
	changed  time.Time // time of the last change; zero: the last comparison is later
	compared time.Time // time of the last comparison; zero: there was none since the first list
	failed   time.Time // time of the last one that failed; zero: a later one has succeeded

	listing listing // only CompareForms uses it
}

// knownForm is a moment at which the last-known objects had their present forms.
type knownForm struct {
	at   time.Time // of the run
	wall time.Time
	rv   uint64
}

// noteFirstList notes the first list.
func (c *content) noteFirstList(at knownForm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sure.wall.IsZero() {
		c.last = at
		c.sure = at
		c.next = at
		c.since = at
	}
}

// dueAt returns when a comparison may be made; false: there is no reason for one.
func (c *content) dueAt() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed.IsZero() || c.sure.wall.IsZero() {
		return time.Time{}, false
	}
	at := c.changed.Add(contentDelay)
	for _, earliest := range [...]time.Time{c.compared.Add(contentEvery), c.failed.Add(contentRetry)} {
		if at.Before(earliest) {
			at = earliest
		}
	}
	return at, true
}

// beginComparison begins a comparison. It returns the moment from which on forms may have changed.
func (c *content) beginComparison() (since knownForm, change time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.changed
}

// endComparison notes a comparison that began at a time. A change that came meanwhile leads to
// another one.
func (c *content) endComparison(began, change time.Time, now knownForm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compared, c.failed = began, time.Time{}
	c.last = now
	c.sure = now
	c.next = now
	c.since = now
	if c.changed.Equal(change) {
		c.changed = time.Time{}
	}
}

func (c *content) noteFailure(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = at
}

// formNow returns the present moment.
func (i *Informer) formNow() knownForm {
	return knownForm{at: i.deps.Now(), wall: time.Now(), rv: i.store.View().Reached}
}

// NoteSameServer records that the API server has the same version as before. seen is the time of
// the last frame of the watch on definitions.
func (i *Informer) NoteSameServer(seen time.Time) {
	now, isCustom := i.formNow(), i.isCustom()
	c := &i.content
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sure.wall.IsZero() || !c.changed.IsZero() {
		return
	}
	if !isCustom || !seen.Before(c.next.wall) {
		c.sure = c.next
	}
	c.next = now
}

// NoteContentChange records that something has happened that can change the forms of objects.
func (i *Informer) NoteContentChange() {
	c := &i.content
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteChangeLocked(c.sure)
}

// NoteOtherForms does the same as NoteContentChange if the API server has shown a known version in
// another form since the last call, and no known change explains that. It reports whether a
// comparison is due.
func (i *Informer) NoteOtherForms() bool {
	if !i.store.TakeOtherForm() {
		return false
	}
	c := &i.content
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteChangeLocked(c.last)
	return true
}

func (c *content) noteChangeLocked(since knownForm) {
	if c.changed.IsZero() {
		c.since = since
	}
	c.changed = time.Now()
}

// FormsDue returns when CompareForms may be called; false: there is no reason to call it.
func (i *Informer) FormsDue() (time.Time, bool) { return i.content.dueAt() }

// CompareForms lists the scope beside its watch, and compares the forms of the last-known versions.
// If some differ, it announces that (package store). Only one goroutine may call it at a time.
func (i *Informer) CompareForms(ctx context.Context) {
	c := &i.content
	since, change := c.beginComparison()
	began := i.formNow()
	if i.Phase() != PhaseLive || !i.store.TakesForms() {
		c.noteFailure(began.wall)
		return
	}
	i.store.TakeOtherForm() // this comparison finds it too
	others, err := i.listForms(ctx)
	i.metrics.lists.WithLabelValues("content").Inc()
	if err != nil {
		c.listing.noteFailure(err)
		i.log.Debug("cannot compare the contents of objects, retrying", "scope", i.name, "err", err, "retry_in",
			contentRetry)
		c.noteFailure(began.wall)
		return
	}
	c.listing = listing{}
	if len(others) > 0 && !i.store.Reform(others, store.Loss{From: since.rv, Since: since.at}) {
		c.noteFailure(began.wall)
		return
	}
	if len(others) > 0 {
		i.log.Warn(
			"the API server serves known versions with other contents: publishing a gap and reading the objects again",
			"scope", i.name, "since", since.at, "objects", len(others))
	}
	c.endComparison(began.wall, change, began)
}

// listForms returns the listed objects that are last-known versions in another form.
func (i *Informer) listForms(ctx context.Context) (others []*object.Object, err error) {
	r := i.newReader()
	r.state = &state{scope: i.name, log: i.log, changed: func() {}}
	take := func(o *object.Object, _ *object.Scanned) {
		if i.store.HasInOtherForm(o) {
			others = append(others, o)
		}
	}
	drop := func(*object.Object, *object.Scanned) {} // it is no longer a last-known version, which Reform finds out
	_, err = i.readListAs(ctx, r, &i.content.listing, metav1.ListOptions{}, taking{take, drop})
	return others, err
}
