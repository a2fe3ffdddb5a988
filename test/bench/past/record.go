package past

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Cluster is the name of the cluster in events, subjects and keys.
const Cluster = "bench"

const (
	clusterUID = "11e0f2a4-0000-4000-8000-000000000000"
	// writer is the agent that writes the record.
	writer = "3f0a5c1e9b7d2846"

	progressEvery = time.Minute
	snapshotEvery = 24 * time.Hour  // the default
	restartEvery  = 61 * time.Hour  // an upgrade now and then
	restartTakes  = 4 * time.Second // until the next run begins
	observesAfter = 1500 * time.Millisecond
	repeatsFor    = 10 * time.Minute // how long a progress repeats an interruption
	saysEtcdEvery = time.Hour
	readTakes     = time.Millisecond // of a snapshot

	replacedOf = 40 // one of so many changes replaces an object
	firstValue = 1000
)

// Options say how large a record is.
type Options struct {
	Changes    int // of objects, those in the reads of snapshots not included
	Objects    int
	Namespaces int
	Resources  int // at most MaxResources
	Begin, End time.Time
	// Short is where the shorter length of the record begins.
	Short time.Time
}

// Record is a record to be written.
type Record struct {
	o       Options
	kinds   []*kind
	objects []*thing
	codecs  map[*kind]*object.Codec
	rng     *rand.Rand
	subject *subject.Template
	put     func(Event) error

	rv   uint64
	now  time.Time
	last map[*kind]uint64 // the resourceVersion of the last change
	// run is the present run of the agent.
	run run
	// snapshotBegan is when the last complete snapshots of all scopes began; zero: there are none.
	snapshotBegan time.Time
}

// run is one run of the agent.
type run struct {
	enc     *encode.Encoder
	began   time.Time
	reports uint64 // so far
	// away is when nobody observed the scopes before this run.
	away object.Interruption
	// shown is the resourceVersion that the last bookmarks showed.
	shown   uint64
	shownAt time.Time
}

// thing is an object of the cluster.
type thing struct {
	ref      *object.Ref
	kind     *kind
	rv       uint64
	born     time.Time
	versions int
	replaced int // how often another object took its place
}

// Event is an event as it is written. Its memory is valid during the call.
type Event struct {
	*encode.Event
	Subject string
	Time    time.Time
}

// An Of identifies an object of the record.
type Of struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Versions  int    `json:"versions"` // at the end of the record
}

// New returns a Record.
func New(o Options) (*Record, error) {
	if o.Resources < 1 || o.Resources > MaxResources || o.Objects < o.Resources {
		return nil, fmt.Errorf("a record has 1 to %d resources, and an object of each: got %d resources, %d objects",
			MaxResources, o.Resources, o.Objects)
	}
	r := &Record{
		o:      o,
		kinds:  resources(o.Resources),
		codecs: map[*kind]*object.Codec{},
		last:   map[*kind]uint64{},
		rng:    rand.New(rand.NewPCG(1, 2)), //nolint:gosec // the same in each run
		rv:     firstValue,
		now:    o.Begin,
	}
	var err error
	r.subject, err = subject.New("", Cluster)
	if err != nil {
		return nil, err
	}
	for i, k := range spread(r.kinds, o.Objects) {
		t := &thing{kind: k}
		r.objects = append(r.objects, t)
		r.create(i)
	}
	return r, nil
}

// create gives place i a new object.
func (r *Record) create(i int) {
	t := r.objects[i]
	namespace, name := "", fmt.Sprintf("web-%d", i)
	if t.kind.Namespaced {
		namespace = fmt.Sprintf("team-%d", i%r.o.Namespaces)
	}
	if t.replaced > 0 {
		name = fmt.Sprintf("%s-%d", name, t.replaced)
	}
	r.rv++
	t.ref = object.NewRef(&t.kind.Resource, namespace, name, fmt.Sprintf("0b6f3f0e-5d7c-4a53-9a57-%012d", r.rv))
	t.rv = r.rv
	t.born = r.now
	t.versions = 1
	r.last[t.kind] = r.rv
	if r.codecs[t.kind] == nil {
		r.codecs[t.kind] = object.NewCodec(content(t.ref, t.rv, t.born))
	}
}

// Young returns n deployments that still exist at the end and were created in the days before a
// time, with about as many versions each. It must follow Write.
func (r *Record) Young(n int, after, before time.Time) []Of {
	const versions = 8
	var all []*thing
	for _, t := range r.objects {
		if t.kind == r.kinds[0] && t.born.After(after) && t.born.Before(before) {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b *thing) int { return abs(a.versions-versions) - abs(b.versions-versions) })
	out := []Of{}
	for _, t := range all[:min(n, len(all))] {
		out = append(out, Of{t.kind.String(), t.ref.Namespace(), t.ref.Name(), t.versions})
	}
	return out
}

func abs(n int) int { return max(n, -n) }

// Write calls put for each event, in the order of the record.
func (r *Record) Write(put func(Event) error) error {
	r.put = put
	if err := r.begin(object.Interruption{Why: object.InterruptedStart}); err != nil {
		return err
	}
	step := r.o.End.Sub(r.o.Begin) / time.Duration(r.o.Changes+1)
	change := r.o.Begin.Add(step)
	snapshot := r.o.Begin
	restart := r.o.Begin.Add(restartEvery)
	progress := r.o.Begin.Add(progressEvery / 2)
	for {
		due, act := change, r.change
		for _, other := range []struct {
			at  time.Time
			act func() error
		}{{progress, func() error { return r.progress(false) }}, {snapshot, r.snapshot}, {restart, r.restart}} {
			if other.at.Before(due) {
				due, act = other.at, other.act
			}
		}
		if !due.Before(r.o.End) {
			return nil
		}
		r.advance(due)
		if err := act(); err != nil {
			return err
		}
		switch due {
		case change:
			change = change.Add(step)
		case progress:
			progress = progress.Add(progressEvery)
		case snapshot:
			snapshot = snapshot.Add(snapshotEvery)
		default:
			restart = restart.Add(restartEvery)
			progress = r.now.Add(progressEvery * 3 / 4)
		}
	}
}

// advance moves the clock to a time, unless it is later: the times of a record never go back.
func (r *Record) advance(to time.Time) {
	if to.After(r.now) {
		r.now = to
	}
}

// begin begins a run, and the observation of all scopes in it.
func (r *Record) begin(away object.Interruption) error {
	r.run = run{
		began:   r.now,
		away:    away,
		shown:   r.rv,
		shownAt: r.now,
	}
	r.run.enc = encode.New(encode.Options{
		Cluster:    Cluster,
		ClusterUID: clusterUID,
		Before:     true,
		Patch:      true,
		Writer:     writer,
		Run:        fmt.Sprintf("0-%d", r.now.UnixMilli()),
		Checkpoint: "configMap kubecdc kubecdc-checkpoint",
	})
	isFirst := away.From.IsZero()
	for _, k := range r.kinds {
		s := &object.StreamEvent{
			Kind:            object.ScopeStarted,
			ResourceVersion: r.rv,
			Initial:         isFirst,
			Continued:       !isFirst,
			Observation:     r.observation(),
		}
		if err := r.stream(k, s); err != nil {
			return err
		}
	}
	r.advance(r.now.Add(observesAfter))
	r.run.away.Until = r.now
	if isFirst {
		r.run.away.From = r.run.began
	}
	return nil
}

// observation returns how each scope is observed: whole, since the record begins.
func (r *Record) observation() *object.Observation {
	return &object.Observation{Rules: []byte(`[{}]`), Since: r.o.Begin}
}

// restart ends the run, and begins the next one.
func (r *Record) restart() error {
	if err := r.progress(true); err != nil {
		return err
	}
	away := object.Interruption{Why: object.InterruptedStart, From: r.now}
	r.advance(r.now.Add(restartTakes))
	return r.begin(away)
}

// snapshot writes a snapshot of each scope.
func (r *Record) snapshot() error {
	isFirst := r.snapshotBegan.IsZero()
	began := r.now
	of := map[*kind][]*thing{}
	for _, t := range r.objects {
		of[t.kind] = append(of[t.kind], t)
	}
	for _, k := range r.kinds {
		id := fmt.Sprintf("%s-%d", r.now.UTC().Format("20060102T150405.000Z"), r.rv)
		at := r.rv
		started := &object.StreamEvent{
			Kind:            object.SnapshotStarted,
			Snapshot:        id,
			ResourceVersion: at,
			Objects:         len(of[k]),
			Initial:         isFirst,
			Observation:     r.observation(),
		}
		if err := r.stream(k, started); err != nil {
			return err
		}
		for _, t := range of[k] {
			r.advance(r.now.Add(readTakes))
			d := &object.Delta{
				Op:              object.Read,
				After:           r.version(t),
				ResourceVersion: t.rv,
				Snapshot:        id,
			}
			if err := r.object(t, d); err != nil {
				return err
			}
		}
		completed := &object.StreamEvent{
			Kind:            object.SnapshotCompleted,
			Snapshot:        id,
			ResourceVersion: at,
			Objects:         len(of[k]),
		}
		if err := r.stream(k, completed); err != nil {
			return err
		}
	}
	r.snapshotBegan = began
	return nil
}

// change writes an update, or a deletion and the creation of another object.
func (r *Record) change() error {
	i := r.rng.IntN(len(r.objects))
	t := r.objects[i]
	r.rv += 1 + r.rng.Uint64N(3) // others write, too
	before, previous := r.version(t), t.rv
	if r.rng.IntN(replacedOf) == 0 {
		gone := &object.Delta{
			Op:              object.Deleted,
			Before:          before,
			ResourceVersion: r.rv,
			Previous:        previous,
		}
		if err := r.object(t, gone); err != nil {
			return err
		}
		t.replaced++
		r.create(i)
		return r.object(t, &object.Delta{Op: object.Created, After: r.version(t), ResourceVersion: t.rv})
	}
	t.rv = r.rv
	t.versions++
	r.last[t.kind] = r.rv
	at := r.now.UTC().Format(time.RFC3339)
	return r.object(t, &object.Delta{
		Op:              object.Updated,
		Before:          before,
		After:           r.version(t),
		ResourceVersion: t.rv,
		Previous:        previous,
		ChangedBy:       fmt.Appendf(nil, `[{"manager":"kube-controller-manager","operation":"Update","time":%q}]`, at),
	})
}

func (r *Record) version(t *thing) *object.Object {
	return object.New(t.ref, t.rv, 0, r.codecs[t.kind], content(t.ref, t.rv, t.born))
}

// progress writes how far the agent has come. It has an entry for each resource, which stands for
// its only scope. Each scope knows the resourceVersion of the last bookmarks, or that of a later
// change.
func (r *Record) progress(ends bool) error {
	r.run.reports++
	p := &object.Report{
		Number:        r.run.reports,
		Since:         r.run.began,
		Ends:          ends,
		To:            r.run.shownAt,
		SnapshotBegan: r.snapshotBegan,
	}
	if since := r.now.Add(-repeatsFor); since.After(p.Since) {
		p.Since = since
	}
	if r.run.reports == 1 || r.run.reports%uint64(saysEtcdEvery/progressEvery) == 0 {
		p.APIServerVersion, p.Etcd = "v1.37.1", "1"
	}
	for _, k := range r.kinds {
		e := object.ScopeReport{Resource: &k.Resource}
		if !r.snapshotBegan.IsZero() {
			e.ResourceVersion = max(r.run.shown, r.last[k])
		}
		if !r.run.away.Until.Before(p.Since) {
			e.Interruptions = []object.Interruption{r.run.away}
		}
		p.Scopes = append(p.Scopes, e)
	}
	if err := r.write(&object.Delta{Report: p}); err != nil {
		return err
	}
	r.run.shown, r.run.shownAt = r.rv, r.now
	return nil
}

// object writes a delta of an object.
func (r *Record) object(t *thing, d *object.Delta) error {
	d.Ref, d.Scope = t.ref, t.kind.String()
	return r.write(d)
}

func (r *Record) stream(k *kind, s *object.StreamEvent) error {
	s.Resource, s.Scope = &k.Resource, k.String()
	return r.write(&object.Delta{Stream: s})
}

func (r *Record) subjectOf(d *object.Delta) string {
	if d.Report != nil {
		return string(r.subject.AppendProgress(nil, writer))
	}
	return string(r.subject.Append(nil, d))
}

func (r *Record) write(d *object.Delta) error {
	d.Observed = r.now.UnixNano()
	e := Event{new(encode.Event), r.subjectOf(d), r.now}
	if err := r.run.enc.Encode(e.Event, d); err != nil {
		return err
	}
	return r.put(e)
}
