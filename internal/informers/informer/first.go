package informer

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// The first list of an unknown scope takes two requests: a list and a watch. If the API server
// offers it (apiserver.InitialEvents), one watch does both. It sends the objects, perhaps with
// changes that come meanwhile, and a bookmark. The frames before the bookmark are loaded like a
// list: the bookmark's version is that of the list, and no event is sent before. Then the same
// watch is followed. When the watch is asked for, the API server has no later version than that of
// the bookmark. So the bookmark is also the proof that coverage.go asks for.
//
// If the API server does not offer it, or is silent for the time of a page, all later first lists
// from it are made in pages. If it ends the watch twice before the bookmark, as it does to a slow
// reader, only this list is made in pages. Before that, the store drops what it has loaded.

// maxCut is how often a watch may fail to complete the first list, until that is made in pages.
const maxCut = 2

// started describes the beginning of an HTTP watch that has shown the first list.
type started struct {
	rv     uint64      // the watch has shown everything up to here
	asked  time.Time   // when it was asked for; as ended, a time of the run
	ended  time.Time   // when it had shown everything up to rv
	unread *time.Timer // ends the watch if it is not followed soon
}

// isPrompt reports whether the list took so little time that its end needs no other proof. After a
// longer one, changes of that time may still come.
func (s *started) isPrompt() bool { return s != nil && s.ended.Sub(s.asked) <= swift }

// listFirst reads the objects of a scope about which nothing is known, and returns their
// resourceVersion.
func (i *Informer) listFirst(ctx context.Context) (rv uint64, err error) {
	for i.canBeginWatch() {
		i.store.BeginList(store.Fresh)
		rv, err = i.startWatch(ctx)
		if err == nil || ctx.Err() != nil {
			return rv, err
		}
		i.log.Debug("a watch has not shown the first list", "scope", i.name, "err", err)
		switch {
		case i.noteMissing(err):
		case errors.Is(err, apiserver.ErrCut):
			i.listing.cut++
		case apiserver.IsTemporary(err):
			i.listing.cut++
			return 0, err
		default: // a list in pages fails for the same reason, or succeeds
			i.listing.cut = maxCut
		}
	}
	i.store.BeginList(store.Fresh)
	return i.readList(ctx, i.newReader(), metav1.ListOptions{}, i.loading())
}

// canBeginWatch reports whether the first list can be the beginning of a watch.
func (i *Informer) canBeginWatch() bool {
	return i.listing.way == paged && i.listing.cut < maxCut &&
		!i.deps.Client.IsMissing(apiserver.InitialEvents, i.server())
}

// noteMissing notes that the API server does not begin watches with the existing objects, if an
// error shows that. An error about the field that selects the agent's part does not show it.
func (i *Informer) noteMissing(err error) bool {
	isOfField := i.spec.Shared && apiserver.SelectableFields.IsMissing(err)
	isMissing := !isOfField && apiserver.InitialEvents.IsMissing(err)
	if isMissing {
		i.deps.Client.NoteMissing(apiserver.InitialEvents, i.server())
	}
	return isMissing
}

// server returns the API group if another API server serves it, "" for the cluster's.
func (i *Informer) server() string {
	if i.IsAggregated() {
		return i.resource.Group
	}
	return ""
}

// startWatch opens a watch that shows the first list, and returns the resourceVersion of that. The
// watch waits to be followed.
func (i *Informer) startWatch(ctx context.Context) (rv uint64, err error) {
	r := i.newReader()
	s := newStream(ctx, i, r)
	s.generation = i.generation.listed
	b := &started{}
	rv, highest, err := i.listInSlot(ctx, r, i.loading(), func(p *listTaker) (uint64, error) {
		b.asked = i.deps.Now() // after the wait for a slot
		return s.openInitial(p.each)
	})
	if err == nil && highest > rv {
		err = apiserver.ErrNoEnd // the bookmark is no position
	}
	if err != nil {
		s.close()
		return 0, err
	}
	i.state.noteAnswer(time.Now(), 0)
	b.rv, b.ended = rv, i.deps.Now()
	b.unread = time.AfterFunc(blockedFor, s.watch.Close)
	s.started, i.started = b, s
	return rv, nil
}

// openInitial opens the HTTP watch, and reads the existing objects.
func (s *stream) openInitial(each func(typ watch.EventType, raw []byte) error) (rv uint64, err error) {
	i := s.informer
	s.watch, rv, err = i.deps.Client.Initial(s.ctx, i.resource, i.selection.Namespace, i.listOptions(),
		i.state.hasBookmarks.Load(), each)
	if err != nil && errors.Is(context.Cause(s.ctx), errGeneration) {
		return 0, apiserver.ErrCut
	}
	s.shown.Store(rv)
	s.lastRead.Store(int64(time.Since(s.began)))
	return rv, err
}

// takeStarted returns the watch that has shown the first list, nil if there is none, or if it was
// not read for too long.
func (i *Informer) takeStarted() *stream {
	s := i.started
	i.started = nil
	if s != nil && !s.started.unread.Stop() {
		s.close()
		return nil
	}
	return s
}

// dropStarted ends the watch that has shown the first list, if it is not followed.
func (i *Informer) dropStarted() {
	if s := i.takeStarted(); s != nil {
		s.close()
	}
}

// listOptions returns the options of a request for all objects of the scope.
func (i *Informer) listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector}
}
