package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// A bookmark says that a watch has shown everything up to a version. Some watches have none: those
// of Events, those without a watch cache, and those of older API servers while nothing changes. If
// such a scope is quiet, nothing moves its position, and nothing ends an interruption.
//
// So the agent settles it at the end of each watch: it moves the position without a bookmark. Three
// facts together do what a bookmark does:
//
//   - A list of the metadata of the whole scope (buffering.go) has what the watch has shown, and
//     nothing else. The watch was open when it began, and its version V is not below the position.
//     So the objects at V are the last-known ones.
//   - The API server ends the watch at its timeout, showWithin or more after the list. A proxy that
//     holds back frames passes them on with the end. So the watch has no change up to V, also none
//     that was reverted before V.
//   - No frame was read since the list began.
//
// The position is then V. A watch from there misses nothing. The bus has all that happened up to
// the time at which the list began.
//
// A watch that is cut, or that the agent ends, settles nothing: a proxy may have held frames. If an
// API server shows a change on the watch more than showWithin later, the list finds it, unless the
// change was reverted.

const (
	// settleEvery is the longest interval at which a quiet scope without bookmarks is settled. Its
	// watch lasts for that time, less settleJitter at most, so that not all watches end at once.
	settleEvery  = 10 * time.Minute
	settleJitter = 30 * time.Second
	// settleSlack is how much earlier than necessary the last list before the end of a watch
	// begins.
	settleSlack = 15 * time.Second
	// settleFresh is how long before that moment an earlier list may have ended, and settle the
	// scope instead.
	settleFresh = time.Minute
	// maxSettleTime bounds the time that is allowed for that list.
	maxSettleTime = 5 * time.Minute
)

// compared is a list of metadata that has what a watch has shown.
type compared struct {
	version uint64
	began   time.Time // of the run
	ended   time.Time
	frames  int64 // that were read before the list
	round   int   // of the interruption that was not over when it began
	// before is the list before this one, because this one may end too late to settle the scope.
	// The one before has none itself.
	before *compared
}

// proof returns the last list of a watch, which ended at a time, that proves a position: it ended
// early enough, and no frame has followed it. It returns nil if there is none.
func (s *stream) proof(ended time.Time) *compared {
	for c := s.compared.Load(); c != nil; c = c.before {
		if s.frames.Load() == c.frames && ended.Sub(c.ended) >= showWithin {
			return c
		}
	}
	return nil
}

// isQuiet reports whether the last list has found nothing, and no frame has followed it.
func (b *buffering) isQuiet() bool { return b.pause > askAfter }

// settlingListAt returns when the last list before the end of a watch must begin, so that it can
// settle the scope. A list may take twice as long as the last one.
func (b *buffering) settlingListAt(s *stream) time.Time {
	return s.watch.EndsAt().Add(-showWithin - settleSlack - min(2*b.took, maxSettleTime))
}

// settleScope moves the position to the version of the last list of metadata, if a watch that has
// ended shows that this is right.
func (f *follower) settleScope(ctx context.Context, s *stream) {
	i := f.informer
	c := s.proof(time.Now())
	isProved := c != nil && s.endedInTime && !s.suspect.Load()
	if !isProved || c.version < f.rv {
		return
	}
	f.doubt.probe(ctx, f.rv, true)
	if f.doubt.phase != certain {
		return
	}
	if !i.store.Apply(ctx, []store.Event{{Type: watch.Bookmark, Version: c.version}}, func() {}) {
		return
	}
	f.rv = c.version
	i.noteSeen(s.lastFrame(), c.began)
	i.coverage.noteSettled(c.version, c.round, c.began, i.deps.Now())
	i.log.Debug("settled", "scope", i.name, "rv", c.version, "as_of", c.began)
}
