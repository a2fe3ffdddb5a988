package publish

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// aloneBackoff is the backoff of one event that is sent alone.
func aloneBackoff() Backoff { return Backoff{First: time.Second, Limit: 5 * time.Minute} }

// alonePause is the minimum time between a failed attempt and the next event that is sent alone.
const alonePause = time.Second

// retry publishes an event again after a backoff. Until then it keeps its key and its slot, and
// none of its bytes.
func (d *Dispatcher[I]) retry(f *flight[I], again *RetryError, now time.Time) {
	f.failures++
	f.capture.note(again.Reason)
	wasAlone := f.alone
	f.alone = f.alone || again.Alone
	delay := max(again.After, BusyBackoff().Delay(f.failures))
	if f.alone && wasAlone {
		delay = max(again.After, aloneBackoff().Delay(f.failures))
	}
	if f.alone && !wasAlone {
		f.failures, delay = 0, again.After
		d.metrics.alone.Inc()
	}
	if f.id == "" {
		f.id = string(f.ID)
	}
	if wasAlone {
		d.retries.freeAlone(now, true)
	}
	d.leaveTurn(f)
	d.queue.Suspend(f.item)
	d.retries.add(f.item, f, again, now.Add(delay))
	d.recycle(f)
}

// sendAlone publishes an event alone. The event has kept its slot in flight: Get could block,
// because waiting isolated events may have all slots. Its bytes may exceed the bound, by at most
// one event.
func (d *Dispatcher[I]) sendAlone(w *waiting[I]) {
	f := d.flights.Get().(*flight[I]) //nolint:forcetypeassert // nothing else is put there
	f.item = w.item
	f.delta = d.delta(w.item)
	f.attempts = w.attempts
	d.queue.Resize(f.item, Weigh(f.delta, d.o.Copies))
	if d.enterTurn(f) {
		d.steps.Put(f)
	}
}

// Stuck is an event that the bus does not accept.
type Stuck struct {
	ID string
	// of the object; of a stream event, Name is its scope; of an agent's progress, its writer
	Resource, Namespace, Name string
	Since                     time.Time
	Failures                  int
	Alone                     bool // sent alone; see RetryError.Alone
	Err                       string
}

// Stuck returns the events that wait for another attempt, the longest wait first.
func (d *Dispatcher[I]) Stuck() []Stuck { return d.retries.list() }

// ErrNotStuck means that no such event waits for another attempt.
var ErrNotStuck = errors.New("no such event is being retried")

// The causes of a dead letter, and of the end of an agent's progress, that an operator requested.
var (
	errOperator = fmt.Errorf("%w: moved to the dead letters by an operator", ErrRefused)
	errDropped  = fmt.Errorf("%w: dropped by an operator", ErrRefused)
)

// DeadLetter sends an event that waits for another attempt to the dead letters, and a gap in its
// place to the bus. It drops the progress of the agent instead. Its error wraps ErrNotStuck if no
// such event waits, for example because an attempt is in progress.
func (d *Dispatcher[I]) DeadLetter(id string) error {
	alone, err := d.retries.giveUp(id, time.Now(), d.o.DeadLetters != nil)
	if err != nil {
		return err
	}
	if alone {
		d.metrics.alone.Dec()
	}
	d.results.Ready.Raise()
	return nil
}

// retries are the flights that wait for another attempt, without their bytes.
type retries[I comparable] struct {
	n atomic.Int64 // size of waiting: it is usually 0, and then take needs no lock

	mu      sync.Mutex
	waiting map[I]*waiting[I] // includes resumed ones until Get returns them
	order   []*waiting[I]     // those not sent alone and not resumed, by due time
	alone   []*waiting[I]     // those sent alone, by due time
	busy    bool              // an event sent alone is in flight
	pause   time.Time         // no event is sent alone before this time
}

type waiting[I comparable] struct {
	attempts
	item   I
	due    time.Time
	last   *RetryError
	about  Stuck
	stream bool // it is a stream event
	report bool // it is the progress of the agent
}

func newRetries[I comparable]() *retries[I] { return &retries[I]{waiting: map[I]*waiting[I]{}} }

func (r *retries[I]) add(item I, f *flight[I], last *RetryError, due time.Time) {
	w := &waiting[I]{
		attempts: f.attempts,
		item:     item,
		due:      due,
		last:     last,
	}
	w.about = Stuck{
		ID:       f.id,
		Resource: labelOf(f.delta),
		Since:    f.taken,
		Failures: f.failures,
		Alone:    f.alone,
		Err:      last.Error(),
	}
	switch d := f.delta; {
	case d.Stream != nil:
		w.stream, w.about.Name = true, d.Stream.Scope
	case d.Report != nil:
		w.report, w.about.Name = true, string(f.Writer)
	default:
		w.about.Namespace, w.about.Name = d.Ref.Namespace(), d.Ref.Name()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[item] = w
	r.n.Add(1)
	if f.alone {
		r.alone = insert(r.alone, w)
	} else {
		r.order = insert(r.order, w)
	}
}

// insert adds an attempt in the order of due times. The items in flight bound the attempts.
func insert[I comparable](attempts []*waiting[I], w *waiting[I]) []*waiting[I] {
	i := sort.Search(len(attempts), func(i int) bool { return attempts[i].due.After(w.due) })
	return slices.Insert(attempts, i, w)
}

// take returns the progress of an item from Get, or nil if Get returned it for the first time.
func (r *retries[I]) take(item I) *attempts {
	if r.n.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting[item]
	if w == nil {
		return nil
	}
	delete(r.waiting, item)
	r.n.Add(-1)
	return &w.attempts
}

// takeDue returns the items to resume, and one to send alone if no other such is in flight. The
// latter no longer waits.
func (r *retries[I]) takeDue(now time.Time) (items []I, alone *waiting[I]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(items) < len(r.order) && !r.order[len(items)].due.After(now) {
		items = append(items, r.order[len(items)].item)
	}
	r.order = slices.Delete(r.order, 0, len(items))
	if len(r.alone) > 0 && !r.busy && !r.alone[0].due.After(now) && !r.pause.After(now) {
		r.busy = true
		alone = r.alone[0]
		r.alone = slices.Delete(r.alone, 0, 1)
		delete(r.waiting, alone.item)
		r.n.Add(-1)
	}
	return items, alone
}

// longest is the wait of completeFlights if nothing is due.
const longest = time.Hour

// untilDue returns the time until takeDue returns more.
func (r *retries[I]) untilDue(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := longest
	if len(r.order) > 0 {
		d = min(d, r.order[0].due.Sub(now))
	}
	if len(r.alone) > 0 && !r.busy {
		d = min(d, max(r.alone[0].due.Sub(now), r.pause.Sub(now)))
	}
	return max(d, 0)
}

// freeAlone permits the next event to be sent alone, after a pause if the previous one failed.
func (r *retries[I]) freeAlone(now time.Time, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	if failed {
		r.pause = now.Add(alonePause)
	}
}

func (r *retries[I]) list() []Stuck {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Stuck, 0, len(r.waiting))
	for _, w := range r.waiting {
		out = append(out, w.about)
	}
	slices.SortFunc(out, func(a, b Stuck) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return out
}

// giveUp makes an immediate attempt to the dead letters, if there are any, the event's next one.
// That of the progress of the agent drops it.
func (r *retries[I]) giveUp(id string, now time.Time, letters bool) (wasAlone bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		if w.about.ID != id {
			continue
		}
		list := &r.order
		if w.alone {
			list = &r.alone
		}
		i := slices.Index(*list, w)
		switch {
		case !letters && !w.report:
			return false, errors.New("no dead letters are configured: set deadLetter in the configuration")
		case i < 0:
			return false, fmt.Errorf("%w: an attempt is in progress: %s", ErrNotStuck, id)
		case w.stream:
			return false,
				fmt.Errorf("event %s is about the stream, and consumers cannot do without it: make the bus accept it",
					id)
		case w.stage >= letter:
			return false, fmt.Errorf("event %s is being sent to the dead letters", id)
		}
		*list = slices.Delete(*list, i, i+1)
		wasAlone = w.alone
		w.alone, w.due = false, now
		if w.report {
			w.cause = fmt.Errorf("%w, after %s", errDropped, w.last.Error()) // not a RetryError
			r.order = insert(r.order, w)
			return wasAlone, nil
		}
		w.beginStage(letter)
		w.reason, w.cause = letterRefused, fmt.Errorf("%w, after %w", errOperator, w.last)
		w.short.Reason = letterRefused + ": " + w.cause.Error()
		w.left = []string{GiveUpPatch, GiveUpBefore, "after"}
		r.order = insert(r.order, w)
		return wasAlone, nil
	}
	return false, fmt.Errorf("%w: %s", ErrNotStuck, id)
}
