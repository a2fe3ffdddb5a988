package scope

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// An etcd that is restored from a copy continues with another history: changes after the copy never happened there, and their
// resourceVersions are given a second time, to other changes. No request fails because of it. kube-apiserver 1.36 answers requests for a
// resourceVersion that its history has not reached (yet) as follows:
//
//   - WATCH: 200, and then nothing, no bookmark either, until the timeout; it omits the events up to it, and sends those after
//     it. The same with and without a watch cache.
//   - LIST Exact: 504, reason Timeout, "Too large resource version", with a watch cache after 3 s, without (and for a name)
//     at once. A lagging API server answers the same.
//   - LIST NotOlderThan: waits for it for 3 s, then the same 504; without a watch cache at once.
//   - LIST without resourceVersion: 200, at the last one now: the only answer that distinguishes the two.
//
// And for a resourceVersion that etcd has compacted: with a watch cache LIST Exact and WATCH may still be served from it, without one
// LIST is 410, and WATCH is 200 and an ERROR frame of 410.

// probeDue reports whether a probe may be made at rest. The first object on a watch that was not probed waits for a probe of its own.
func (f *follower) probeDue() bool { return time.Since(f.probed) >= apiserver.ProbeEvery }

// rewound reports whether the API server has another history than the one that was followed so far. It asks only in doubt. If the API server
// does not answer, it returns false, and the doubt remains. thorough: it makes a second request if one list is not enough.
func (f *follower) rewound(ctx context.Context, thorough bool) bool {
	if !f.doubtful {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, apiserver.ProbeTimeout)
	defer cancel()
	f.probed = time.Now()
	same, settled, err := f.compare(ctx, thorough)
	if err != nil {
		f.informer.noteError("probe", err)
		f.doubtful = !apiserver.IsPermanent(err)
		f.unanswered = time.Now()
		return false
	}
	f.doubtful = !settled
	return !same
}

// compare compares the last version that was seen with the API server's. settled: no request can find out more. Usually one list suffices: it
// has the present resourceVersion, and the object as it was seen last.
func (f *follower) compare(ctx context.Context, thorough bool) (same, settled bool, err error) {
	i := f.informer
	if err := i.deps.Lookups.Wait(ctx); err != nil {
		return true, false, err
	}
	if f.witness == nil || f.witnessHidden {
		now, err := i.Latest(ctx)
		return now >= f.rv, true, err
	}
	o := f.witness.object
	found, now, err := i.look(ctx, backfill.Question{Ref: o.Ref}, metav1.ListOptions{Limit: 1})
	switch {
	case errors.Is(err, apiserver.ErrUnanswerable), apiserver.IsPermanent(err):
		f.witnessHidden = true
		same, settled, err := f.compare(ctx, thorough)
		f.witnessHidden = err == nil // else lists are refused at present, and nothing is known about questions for one object
		return same, settled, err
	case err != nil:
		return true, false, err
	case now < f.rv:
		return false, true, nil
	case f.witness.gone && found == nil && !thorough:
		return true, false, nil // it may have been deleted once more, in another history
	case !f.witness.gone && found != nil && sameVersion(found.Object, o):
		return true, true, nil
	}
	if err := i.deps.Lookups.Wait(ctx); err != nil {
		return true, false, err
	}
	same, known, err := i.sameHistory(ctx, f.witness)
	return same || !known, true, err
}

// Latest returns the present resourceVersion of etcd.
func (i *Informer) Latest(ctx context.Context) (uint64, error) {
	meta, err := i.page(ctx, i.selection.Namespace, metav1.ListOptions{Limit: 1, LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector},
		func([]byte) error { return nil })
	if err != nil {
		return 0, err
	}
	return apiserver.ListVersion(&meta)
}

// witness is a version that was seen, by which history is recognized.
type witness struct {
	object *object.Object
	gone   bool // it was deleted with its version
}

// newest is the last-known object that was changed last, nil: there is none.
func (i *Informer) newest() *witness {
	if o := i.store.Newest(); o != nil {
		return &witness{object: o}
	}
	return nil
}

// sameHistory reports whether a version that was seen is part of the API server's history. known is false if that history does not go back so
// far, or may not be read. uid and resourceVersion are not enough: after a restore, an object of the copy is changed again, and may get
// the same ones. Then its managedFields were written at another time.
func (i *Informer) sameHistory(ctx context.Context, w *witness) (same, known bool, err error) {
	o := w.object
	f, err := i.ask(ctx, backfill.Question{Ref: o.Ref, At: o.ResourceVersion})
	switch {
	case errors.Is(err, apiserver.ErrUnanswerable), apiserver.IsPermanent(err):
		return false, false, nil
	case err != nil:
		return false, false, err
	case f == nil:
		return w.gone, true, nil
	case w.gone: // or the server gives deletions no version of their own
		return false, f.Object.ResourceVersion != o.ResourceVersion, nil
	}
	return sameVersion(f.Object, o), true, nil
}

// sameVersion reports whether a and b are one version of one object.
func sameVersion(a, b *object.Object) bool {
	return a.Ref.UID == b.Ref.UID && a.ResourceVersion == b.ResourceVersion && a.Managed == b.Managed
}
