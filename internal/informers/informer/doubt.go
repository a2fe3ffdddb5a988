package informer

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// An etcd that is restored from a copy continues with another history. Changes after the copy never
// happened there, and their resourceVersions are assigned a second time, to other changes. No
// request fails because of it. If the history has not reached a resourceVersion (yet),
// kube-apiserver 1.36 answers requests for it as follows:
//
//   - WATCH: 200, and no frame until the timeout, not even a bookmark. It omits the events up to
//     the resourceVersion, and sends those after it. The same with and without a watch cache.
//   - LIST Exact: 504, reason Timeout, "Too large resource version", with a watch cache after 3 s,
//     without (and for a name) at once. A lagging API server answers the same.
//   - LIST NotOlderThan: waits for 3 s, then the same 504; without a watch cache at once.
//   - LIST without resourceVersion: 200, at the last one now: the only answer that distinguishes
//     the two.
//
// If etcd has compacted a resourceVersion, a watch cache may still serve LIST Exact and WATCH.
// Without one, LIST is 410, and WATCH is 200 and an ERROR frame of 410.
//
// An aggregated API server may have no etcd. The resourceVersion of its list may be the highest one
// of its objects, so it goes down when the newest object is deleted. So there a lower list proves
// nothing, and only a witness does.

// doubtPhase says whether the API server is known to have the followed history.
type doubtPhase uint8

const (
	certain    doubtPhase = iota // no HTTP watch has ended early since history was compared
	doubtful                     // another history may have begun: the next object waits for a probe
	unanswered                   // a probe got no answer: objects were taken without one
	refuted                      // the API server has another history
	undecided                    // no answer of the API server can decide it: the scope is listed and compared
)

// String returns the name of a phase, for messages.
func (p doubtPhase) String() string {
	return [...]string{
		certain: "certain", doubtful: "doubtful", unanswered: "unanswered", refuted: "refuted", undecided: "undecided",
	}[p]
}

// leadsTo reports whether next may follow p. A follower ends in the last two phases.
func (p doubtPhase) leadsTo(next doubtPhase) bool {
	table := [...][]doubtPhase{
		certain:    {doubtful},
		doubtful:   {certain, unanswered, refuted, undecided},
		unanswered: {certain, refuted, undecided},
		refuted:    {},
		undecided:  {},
	}
	return slices.Contains(table[p], next)
}

// doubt compares the history of an API server with the one that an informer follows, over a
// succession of HTTP watches. Each end of a watch that may hide a restore raises doubt. Then the
// next object waits for a probe, which compares a witness (a seen version) and the current
// resourceVersion with the API server's. It belongs to the informer's owner goroutine.
type doubt struct {
	informer *Informer
	phase    doubtPhase
	witness  *witness // the last version that a list or, in phase certain, a watch has shown; nil: none yet
	taken    *witness // the last version that a watch has shown in phase unanswered; else nil
	hidden   bool     // the API server does not answer lists of a single object

	probed time.Time // time of the last probe
	failed time.Time // time of the last probe without an answer
}

// witness is a seen version that identifies history.
type witness struct {
	object *object.Object
	gone   bool // the version is its deletion
}

func newDoubt(i *Informer) doubt {
	d := doubt{informer: i}
	if o := i.store.Newest(); o != nil {
		d.witness = &witness{object: o}
	}
	return d
}

// enter changes the phase. It is the only function that does.
func (d *doubt) enter(next doubtPhase) {
	if !d.phase.leadsTo(next) {
		d.informer.log.Error(IllegalChange, "scope", d.informer.name, "from", d.phase.String(), "to", next.String())
	}
	d.phase = next
}

// raise makes the next object wait for a probe.
func (d *doubt) raise() {
	if d.phase == certain {
		d.enter(doubtful)
	}
}

// noteWitness records the last version of a batch that was applied.
func (d *doubt) noteWitness(w *witness) {
	if d.phase == certain {
		d.witness = w
	} else {
		d.taken = w
	}
}

// isOpen reports whether a probe can change the phase.
func (d *doubt) isOpen() bool { return d.phase == doubtful || d.phase == unanswered }

// isDue reports whether a probe may be made at rest.
func (d *doubt) isDue() bool { return time.Since(d.probed) >= apiserver.ProbeEvery }

// verdict is the answer of a comparison.
type verdict uint8

const (
	same      verdict = iota // the history is the followed one, as far as the API server can answer
	likely                   // nothing contradicts it, and a thorough comparison can find out more
	another                  // the history is another one
	uncertain                // the answers allow both
)

// probe compares history if it is in doubt, and changes the phase. Without an answer the doubt
// remains. rv is the position. thorough: an object waits for the answer. Then probe repeats a
// request that fails, and makes a second one if one list is not enough.
func (d *doubt) probe(ctx context.Context, rv uint64, thorough bool) {
	// The time limit begins after the wait for the budget: an object must not pass unchecked
	// because other scopes have asked many questions.
	if !d.isOpen() || d.informer.deps.Lookups.Wait(ctx) != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, apiserver.ProbeTimeout)
	defer cancel()
	d.probed = time.Now()
	var v verdict
	err := retry.Do(within, func() (err error) {
		v, err = d.compare(within, rv, thorough)
		if err == nil && v == same && d.taken != nil { // later versions came while there was no answer
			d.witness, d.taken = d.taken, nil
			v, err = d.compare(within, rv, thorough)
		}
		if err != nil {
			d.informer.noteError("probe", err)
		}
		return err
	}, func(err error, _ time.Duration) bool { return thorough && !apiserver.IsPermanent(err) })
	switch {
	case err == nil:
		d.applyVerdict(v)
		return
	case thorough && d.phase == doubtful && ctx.Err() == nil:
		d.enter(unanswered)
	}
	d.failed = time.Now()
}

// applyVerdict changes the phase after a comparison.
func (d *doubt) applyVerdict(v verdict) {
	switch v {
	case same:
		d.enter(certain)
	case likely: // the doubt remains
	case another:
		d.enter(refuted)
	case uncertain:
		d.enter(undecided)
	}
}

// compare compares the witness with what the API server has now. One list is enough in most cases:
// it has the current resourceVersion, and the object as it was last seen.
func (d *doubt) compare(ctx context.Context, rv uint64, thorough bool) (verdict, error) {
	i := d.informer
	if d.witness == nil || d.hidden {
		now, err := i.latestAsProof(ctx)
		return i.judgeLatest(now, rv), err
	}
	o := d.witness.object
	found, now, err := i.askAsProof(ctx, o.Ref)
	switch {
	case errors.Is(err, apiserver.ErrUnanswerable), apiserver.IsPermanent(err):
		d.hidden = true
		v, err := d.compare(ctx, rv, thorough)
		// otherwise lists are refused at present, and whether single objects can be read is unknown
		d.hidden = err == nil
		return v, err
	case err != nil:
		return same, err
	}
	latest := i.judgeLatest(now, rv)
	switch {
	case latest == another:
		return another, nil
	case found != nil && !d.witness.gone && isOneVersion(found.Object, o):
		return same, nil
	case found != nil && isOlder(found.Object, o):
		return another, nil
	case found == nil && latest == same && d.witness.gone && !thorough:
		return likely, nil // it may have been deleted once more, in another history
	}
	return d.askPast(ctx, latest)
}

// askAsProof asks for the present version of an object. Like latestAsProof, it returns the current
// resourceVersion of etcd, and makes it the version that the watch must show.
func (i *Informer) askAsProof(ctx context.Context, ref *object.Ref) (*backfill.Answer, uint64, error) {
	round, asks := i.coverage.takeQuestion(i.deps.Now())
	found, now, err := i.askWith(ctx, backfill.Question{Ref: ref}, metav1.ListOptions{Limit: 1})
	if asks && err == nil {
		i.coverage.noteProof(round, now, i.deps.Now())
	}
	return found, now, err
}

// askPast asks whether the witness is part of the API server's history. Without an answer the
// verdict is that of the current resourceVersion.
func (d *doubt) askPast(ctx context.Context, latest verdict) (verdict, error) {
	isSame, known, err := d.informer.sameHistory(ctx, d.witness)
	switch {
	case err != nil || !known:
		return latest, err
	case isSame:
		return same, nil
	default:
		return another, nil
	}
}

// judgeLatest compares the current resourceVersion with a position.
func (i *Informer) judgeLatest(now, position uint64) verdict {
	switch {
	case now >= position:
		return same
	case i.IsAggregated():
		return uncertain
	default:
		return another
	}
}

// sameHistory reports whether a seen version is part of the API server's history. known is false if
// that history does not go back so far, or may not be read. uid and resourceVersion are not enough:
// after a restore, an object of the copy may change again and get the same ones. Then the times of
// its managedFields differ.
func (i *Informer) sameHistory(ctx context.Context, w *witness) (isSame, known bool, err error) {
	return i.inHistory(ctx, w.object.Ref, w.object.ResourceVersion, w.gone, func(there *backfill.Answer) bool {
		return isOneVersion(there.Object, w.object)
	})
}

// inHistory does what sameHistory does, for the version rv of an object, or for its deletion
// (gone). equal compares a version that is not a deletion with the one that the API server has.
func (i *Informer) inHistory(ctx context.Context, ref *object.Ref, rv uint64, gone bool,
	equal func(there *backfill.Answer) bool,
) (isSame, known bool, err error) {
	there, err := i.ask(ctx, backfill.Question{Ref: ref, At: rv})
	absent := err == nil && there == nil
	if absent && gone { // that may be because it never existed
		there, err = i.ask(ctx, backfill.Question{Ref: ref, At: rv - 1})
	}
	switch {
	case errors.Is(err, apiserver.ErrUnanswerable), apiserver.IsPermanent(err):
		return false, false, nil
	case err != nil:
		return false, false, err
	case absent:
		return there != nil && there.Object.Ref.UID == ref.UID, true, nil
	case gone: // or the server assigns no new version to deletions
		return false, there.Object.ResourceVersion != rv, nil
	}
	return equal(there), true, nil
}

// isOneVersion reports whether a and b are one version of one object.
func isOneVersion(a, b *object.Object) bool {
	return a.Ref.UID == b.Ref.UID && a.ResourceVersion == b.ResourceVersion && a.Managed == b.Managed
}

// isOlder reports whether the current version now is older than one that was seen of the same
// object. No history allows that.
func isOlder(now, seen *object.Object) bool {
	return now.Ref.UID == seen.Ref.UID && now.ResourceVersion < seen.ResourceVersion
}

// Latest returns the current resourceVersion of etcd.
func (i *Informer) Latest(ctx context.Context) (uint64, error) {
	return i.deps.Client.Latest(ctx, i.resource, i.selection.Namespace, apiserver.JSON,
		metav1.ListOptions{LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector})
}
