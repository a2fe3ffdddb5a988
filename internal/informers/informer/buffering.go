package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
)

// A proxy between the agent and the API server may hold back the frames of a watch. It passes them
// on when its buffer is full, or when the API server ends the watch, after minutes. No request
// fails. The silence of the watch proves nothing: there may be no changes, and not every resource
// has bookmarks.
//
// So the agent asks. After askAfter without a frame it lists the metadata of the whole scope. The
// watch must show each change in that list: an object above the position, or the absence of a
// last-known object. If it does not within showWithin, it holds back changes. Then the agent ends
// it, and calls the scope stale. It asks the API server to end the next watch after briefWatch,
// because a proxy passes on what it holds when the response ends. The watches that follow are brief
// too, until one shows frames before its end, or none at all. The next watch has the usual length,
// and the agent asks about it again.
//
// A list that finds nothing doubles the pause before the next one, up to maxAskPause. AskPages
// bounds the pages of all scopes. The last list before the end of a watch settles the scope
// (settle.go).

const (
	askAfter    = 90 * time.Second // without a frame; a bookmark comes each minute
	showWithin  = 30 * time.Second // the end of the list that has the change
	maxAskPause = 10 * time.Minute
	briefWatch  = 30 * time.Second
	// passesAfter is how long the agent must wait for the next frame, or for the end, after a
	// frame. Then the path holds back nothing. An API server sends the last bookmark about 1 s
	// before the end.
	passesAfter = 500 * time.Millisecond
	// passesBusy is how long frames must follow each other to show the same.
	passesBusy = 10 * time.Second
	// proxyAfter is how many watches in a row must hold back changes until the agent says that a
	// proxy buffers.
	proxyAfter = 3
)

// AskPages and AskBurst bound the pages, of apiserver.PageSize objects, of the lists of metadata of
// all scopes: a second, and at once.
const (
	AskPages = 2
	AskBurst = 20
)

// ReasonHeldBack is the class of the problem of a scope whose watch holds back changes.
const ReasonHeldBack = "held_back"

// heldBackAdvice follows the description of what a watch holds back, once the agent says that a
// proxy buffers.
const heldBackAdvice = "a proxy on the path seems to buffer watches: switch off the buffering of its responses, or let the agent connect to the API server directly"

// errHeldBack ends an HTTP watch that does not show what a list shows.
var errHeldBack = errors.New("the watch holds back changes")

// buffering is the state of an informer's questions about the path of its watches. It belongs to
// the owner. While a watch is open, the owner lends it to the goroutine that asks about the watch.
type buffering struct {
	pause time.Duration // from the last list to the next one
	asked time.Time     // the end of the last list
	took  time.Duration // the last list, with its waits
	row   int           // watches in a row that have held back changes
	brief bool          // the next watch is, or the one that is open
}

// asksAt returns when to ask about a watch.
func (b *buffering) asksAt(s *stream) time.Time {
	at := s.lastFrame().Add(askAfter)
	if b.isShownSince(s) {
		return at
	}
	next := b.asked.Add(b.pause)
	if at.After(next) {
		next = at
	}
	settling := b.settlingListAt(s)
	isNearby := next.After(settling.Add(-b.pause / 2))
	isFresh := settling.Before(b.asked.Add(settleFresh)) // the last list settles the scope as well
	if isNearby && !isFresh && !settling.Before(at) {
		return settling
	}
	return next
}

// isShownSince reports whether a watch has shown a frame since the last list.
func (b *buffering) isShownSince(s *stream) bool {
	return s.frames.Load() > 0 && s.lastFrame().After(b.asked)
}

// noteList notes the end of a list that began at began. found: it has a change that the watch has
// not shown. failed: it was not complete.
func (b *buffering) noteList(found, failed bool, s *stream, began time.Time) {
	if found || b.isShownSince(s) {
		b.pause = askAfter
	}
	if !found {
		b.pause = min(2*b.pause, maxAskPause)
	}
	b.asked = time.Now()
	took := b.asked.Sub(began)
	if failed { // the end of the watch may have cut it
		took = max(took, b.took)
	}
	b.took = took
}

// noteEnd notes the end of a watch. If the watch has held back changes, it returns a description,
// else nil. A brief watch has if all of its changes came with its end: it was opened because there
// were some.
func (b *buffering) noteEnd(got *watched, err error) (heldBack error) {
	if got.last.After(b.asked) {
		b.pause = askAfter
	}
	if got.passed {
		b.row = 0
	}
	ended := got.opened && err == nil
	switch {
	case errors.Is(err, errHeldBack):
		heldBack = err
	case b.brief && ended && got.objects > 0 && !got.passed:
		heldBack = fmt.Errorf("%w: it showed them with its end", errHeldBack)
	}
	if heldBack != nil {
		b.row++
	}
	switch {
	case errors.Is(err, errHeldBack), errors.Is(err, apiserver.ErrSilent):
		b.brief = true
	case got.passed, ended && got.frames == 0:
		b.brief = false
	}
	return heldBack
}

// askAbout lists the scope while an HTTP watch is silent, and ends the watch if it holds back
// changes.
func (i *Informer) askAbout(s *stream) {
	b := &i.buffering
	// A frame that comes meanwhile may make the next list earlier, but not by more than askAfter.
	for s.waitQuiet(min(time.Until(b.asksAt(s)), askAfter)) {
		switch {
		case time.Now().Before(b.asksAt(s)):
			continue
		case !s.isApplied(): // the watch waits for the owner, not for the path
			b.asked = time.Now()
			continue
		}
		began := time.Now()
		found, err := i.findMissing(s)
		b.noteList(found != nil, err != nil, s, began)
		s.suspect.Store(found != nil)
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil:
			i.noteError("compare", err)
		case found == nil:
			i.state.clearHeldBack()
		case pause.For(s.ctx, showWithin) == nil && !found.isShown(s):
			s.end(fmt.Errorf("%w: %s", errHeldBack, found))
			return
		default:
			s.suspect.Store(false)
		}
	}
}

// waitQuiet waits for d, or until askAfter after a frame that comes meanwhile. It returns false if
// the watch has ended. So the goroutine that asks about a watch with bookmarks does not wake.
func (s *stream) waitQuiet(d time.Duration) bool {
	s.quiet.Reset(d)
	select {
	case <-s.quiet.C:
		return s.ctx.Err() == nil
	case <-s.ctx.Done():
		return false
	}
}

// missing is a change that a list has, and that the watch has not shown.
type missing struct {
	version uint64 // of an object; 0: the list does not have some last-known objects
	absent  int    // the number of these
	listed  uint64 // resourceVersion of the list
	frames  int64  // that were read before the list
}

// String says what is missing on the watch. It names no object: the status shows it.
func (m *missing) String() string {
	if m.version == 0 {
		return fmt.Sprintf("it does not show deletions: a list at resourceVersion %[2]d lacks %[1]d objects", m.absent,
			m.listed)
	}
	return fmt.Sprintf("it does not show resourceVersion %d, which an object in a list has", m.version)
}

// isShown reports whether the watch has shown the change. The version of a deletion is not known:
// then any frame counts.
func (m *missing) isShown(s *stream) bool {
	if m.version == 0 {
		return s.frames.Load() != m.frames
	}
	return s.shown.Load() >= m.version
}

// errFound ends a list.
var errFound = errors.New("a change was found")

// findMissing lists the metadata of the scope, and returns a change that the watch has not shown,
// nil if there is none. If the list and the watch show the same, it notes the list for settleScope.
func (i *Informer) findMissing(s *stream) (*missing, error) {
	m := &missing{frames: s.frames.Load()}
	c := &compared{began: i.deps.Now(), frames: m.frames, round: i.coverage.openRound()}
	view := i.store.View()
	known := 0
	scanner := object.NewScanner(nil)
	var text, key []byte // reused
	each := func(raw []byte) (err error) {
		var o *object.Scanned
		text, o, err = scanner.Scan(text[:0], raw, "", "")
		if err != nil {
			return err
		}
		rv, err := versionOf(o)
		if err != nil {
			return err
		}
		if rv > s.shown.Load() {
			m.version = rv
			return errFound
		}
		if i.store.HasObject(o.Namespace, o.Name, o.UID, &key) {
			known++
		}
		return nil
	}
	at, err := i.listMetadata(s.ctx, each)
	switch {
	case errors.Is(err, errFound):
		return m, nil
	case err != nil:
		return nil, err
	}
	// A list that is older than the position shows nothing. If frames came meanwhile, or deltas of
	// an earlier list are pending, the absence of an object shows nothing either.
	m.listed, m.absent = at, view.Objects-known
	isComparable := view.Pending == 0 && s.frames.Load() == m.frames
	if isComparable && at > s.shown.Load() && m.absent > 0 {
		return m, nil
	}
	if isComparable && at >= s.shown.Load() && m.absent == 0 {
		c.version, c.ended = at, time.Now()
		if before := s.compared.Load(); before != nil {
			last := *before
			last.before = nil
			c.before = &last
		}
		s.compared.Store(c)
	}
	return nil, nil //nolint:nilnil // nothing is missing
}

// listMetadata lists the metadata of the scope, page by page, and returns the resourceVersion of
// the list. An error of each ends it.
func (i *Informer) listMetadata(ctx context.Context, each func(raw []byte) error) (rv uint64, err error) {
	o := metav1.ListOptions{
		LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector, Limit: apiserver.PageSize,
	}
	for {
		meta, err := i.pageOfMetadata(ctx, &o, each)
		if err != nil {
			return 0, err
		}
		at, err := apiserver.ListVersion(&meta)
		switch {
		case err != nil:
			return 0, err
		case rv != 0 && at != rv:
			return 0, fmt.Errorf("list: page at resourceVersion %d after pages at %d", at, rv)
		case meta.Continue == "":
			return at, nil
		}
		rv = at
		o.Continue = meta.Continue
	}
}

// pageOfMetadata reads one page. It holds a slot only meanwhile, because the wait for the next page
// may be long.
func (i *Informer) pageOfMetadata(
	ctx context.Context, o *metav1.ListOptions, each func(raw []byte) error,
) (object.ListMeta, error) {
	if err := i.deps.Questions.Wait(ctx); err != nil {
		return object.ListMeta{}, err
	}
	slot, err := i.deps.Lists.Acquire(ctx, i.resource.Group)
	if err != nil {
		return object.ListMeta{}, err
	}
	meta, err := i.deps.Client.List(ctx, i.resource, i.selection.Namespace, apiserver.MetadataOnly, *o,
		func(raw []byte) error {
			slot.Answered()
			return each(raw)
		})
	slot.Release(err == nil || errors.Is(err, errFound))
	return meta, err
}

// notePath notes what the end of an HTTP watch shows of the path.
func (i *Informer) notePath(got *watched, err error) {
	b := &i.buffering
	heldBack := b.noteEnd(got, err)
	if got.passed {
		i.deps.Path.notePassed(i.name)
	}
	if heldBack == nil {
		return
	}
	text := heldBack.Error()
	if b.row >= proxyAfter {
		text += ": " + heldBackAdvice
	}
	i.state.setHeldBack(text)
	i.deps.Path.noteHeldBack(i.name, heldBack, b.row)
	i.store.Notify()
}

// heldBack describes why the known state is out of date although no request fails.
type heldBack struct {
	why   string // "": nothing is known to be held back
	since time.Time
}

func (s *state) setHeldBack(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held.why == "" {
		s.held.since = s.life
	}
	s.held.why = why
	s.changedLocked()
}

func (s *state) clearHeldBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = heldBack{}
}

// Path is the state of the path to the API server, which the informers of a manager share.
type Path struct {
	log *slog.Logger

	mu       sync.Mutex
	warned   time.Time
	buffered map[string]bool // scopes whose last watches, at least proxyAfter, have held back changes
}

// NewPath returns a Path on which nothing is held back.
func NewPath(log *slog.Logger) *Path { return &Path{log: log, buffered: map[string]bool{}} }

// noteHeldBack logs that a watch has held back changes, once a minute for all scopes. From
// proxyAfter watches of a scope in a row on, it logs instead that a proxy buffers, once.
func (p *Path) noteHeldBack(scope string, err error, row int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if row >= proxyAfter {
		isFirst := len(p.buffered) == 0
		p.buffered[scope] = true
		if isFirst {
			p.log.Warn("a proxy seems to buffer watches: changes are minutes late",
				"scope", scope, "watches", row, "err", err, "advice", heldBackAdvice)
		}
		return
	}
	if len(p.buffered) > 0 || time.Since(p.warned) < warnEvery {
		return
	}
	p.warned = time.Now()
	p.log.Warn("a watch does not show what a list shows: opening another one", "scope", scope, "err", err)
}

// notePassed notes that the watch of a scope is not buffered, or that the scope has ended.
func (p *Path) notePassed(scope string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buffered, scope)
}
