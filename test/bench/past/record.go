package past

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// Cluster is the name of the cluster in events, subjects and keys.
const Cluster = "bench"

// writer is the agent that writes the record, in one run.
const writer = "3f0a5c1e9b7d2846"

// repeats is how long each progress repeats the interruption at the start.
const repeats = 10 * time.Minute

const (
	snapshots  = 4 // of each scope, at the same intervals
	firstValue = 1000
	headers    = len("NATS/1.0\r\ncontent-type: \r\nNats-Msg-Id: \r\n\r\n") + len(contentType)
)

// Options say how large a record is.
type Options struct {
	Events     int // of objects, those of snapshots included
	Objects    int
	Namespaces int
	Begin, End time.Time
}

// Record is a record to be written.
type Record struct {
	o       Options
	scopes  []*object.Resource
	refs    []*object.Ref
	last    []*object.Object
	codecs  []*object.Codec
	rng     *rand.Rand
	enc     *encode.Encoder
	subject *subject.Template
	put     func(Event) error
	sizes   map[Of]*Size

	rv      uint64
	written int // events of objects
	now     time.Time
	step    time.Duration // between two events of objects
	next    time.Time     // when progress is due
	reports uint64        // so far
	// snapshotBegan is when the last complete snapshots of all scopes began; zero: there are none.
	snapshotBegan time.Time
}

// Event is an event as it is written. Its memory is valid during the call.
type Event struct {
	*encode.Event
	Subject string
	Time    time.Time
}

// An Of identifies an object of the record or, without a name, the stream events of a resource. The
// zero Of is the progress.
type Of struct{ Resource, Namespace, Name string }

// Size is the amount of data written for an Of.
type Size struct {
	Versions int   // of objects that had the name, deletions included; of other events all
	Bytes    int64 // as JetStream has them, with subjects and headers
}

// New returns a Record.
func New(o Options) (*Record, error) {
	r := &Record{
		o: o, rng: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // the same in each run
		enc: encode.New(encode.Options{
			Cluster: Cluster, ClusterUID: "11e0f2a4-0000-4000-8000-000000000000", Before: true, Patch: true,
			Writer: writer, Run: fmt.Sprintf("0-%d", o.Begin.UnixMilli()),
			Checkpoint: "configMap kubecdc kubecdc-checkpoint",
		}),
		scopes: []*object.Resource{
			{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
			{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true},
			{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true},
			{Version: "v1", Name: "services", Kind: "Service", Namespaced: true},
		},
		sizes: map[Of]*Size{}, rv: firstValue, now: o.Begin, next: o.Begin.Add(time.Minute),
		step: o.End.Sub(o.Begin) / time.Duration(o.Events+1),
	}
	if least := (snapshots + 1) * o.Objects; o.Events < least {
		return nil, fmt.Errorf("a record of %d objects needs %d events or more, got %d", o.Objects, least, o.Events)
	}
	var err error
	if r.subject, err = subject.New("", Cluster); err != nil {
		return nil, err
	}
	for i := range o.Objects {
		res := r.scopes[i%len(r.scopes)]
		name := fmt.Sprintf("web-%d", i)
		r.refs = append(r.refs, object.NewRef(res, fmt.Sprintf("team-%d", i/len(r.scopes)%o.Namespaces), name, fmt.Sprintf("0b6f3f0e-5d7c-4a53-9a57-%012d", i)))
	}
	for _, res := range r.scopes {
		r.codecs = append(r.codecs, object.NewCodec(r.content(object.NewRef(res, "team-0", "web-0", "uid"), 1)))
	}
	r.last = make([]*object.Object, o.Objects)
	return r, nil
}

// Object returns the name of the i-th object.
func (r *Record) Object(i int) Of {
	return ofRef(r.refs[i])
}

func ofRef(ref *object.Ref) Of { return Of{ref.Resource.String(), ref.Namespace(), ref.Name()} }

// Size returns how much Write has written of an object, or of stream events.
func (r *Record) Size(of Of) Size { return *r.sizes[of] }

// Write calls put for each event. The starts of the scopes and a snapshot of each begin the record,
// and other snapshots follow at equal intervals. Between them, objects change in random order, and
// one of a hundred changes deletes an object and creates another one of its name. Progress of all
// scopes is sent each minute, and at the end.
func (r *Record) Write(put func(Event) error) error {
	r.put = put
	for i, ref := range r.refs {
		r.last[i] = r.version(i, ref)
	}
	for _, res := range r.scopes {
		started := &object.StreamEvent{
			Kind: object.ScopeStarted, Resource: res, ResourceVersion: r.rv, Initial: true, Observation: r.observation(),
		}
		if err := r.stream(started); err != nil {
			return err
		}
	}
	changes := r.o.Events - snapshots*r.o.Objects
	for s := range snapshots {
		if err := r.snapshot(s); err != nil {
			return err
		}
		until := r.written + changes/snapshots
		if s == snapshots-1 {
			until = r.o.Events
		}
		for r.written < until {
			if err := r.change(until - r.written); err != nil {
				return err
			}
		}
	}
	return r.progress(true)
}

// observation returns how each scope is observed: whole, since the record begins.
func (r *Record) observation() *object.Observation {
	return &object.Observation{Rules: []byte(`[{}]`), Since: r.o.Begin}
}

// snapshot writes a snapshot of each scope.
func (r *Record) snapshot(n int) error {
	began := r.now
	for s, res := range r.scopes {
		id := fmt.Sprintf("%d-%d", n, s)
		at, objects := r.rv, (len(r.refs)+len(r.scopes)-1-s)/len(r.scopes)
		if err := r.stream(&object.StreamEvent{
			Kind: object.SnapshotStarted, Resource: res, Snapshot: id, ResourceVersion: at, Objects: objects,
			Initial: n == 0, Observation: r.observation(),
		}); err != nil {
			return err
		}
		for i, ref := range r.refs {
			if i%len(r.scopes) != s {
				continue
			}
			d := &object.Delta{Op: object.Read, Ref: ref, After: r.last[i], ResourceVersion: r.last[i].ResourceVersion, Snapshot: id}
			if err := r.object(d); err != nil {
				return err
			}
		}
		if err := r.stream(&object.StreamEvent{Kind: object.SnapshotCompleted, Resource: res, Snapshot: id, ResourceVersion: at, Objects: objects}); err != nil {
			return err
		}
	}
	r.snapshotBegan = began
	return nil
}

// change writes an update, or a deletion and a creation if there is room for both.
func (r *Record) change(room int) error {
	i := r.rng.IntN(len(r.refs))
	before := r.last[i]
	if room > 1 && r.rng.IntN(100) == 0 {
		r.rv++
		gone := &object.Delta{Op: object.Deleted, Ref: r.refs[i], Before: before, ResourceVersion: r.rv, Previous: before.ResourceVersion}
		if err := r.object(gone); err != nil {
			return err
		}
		r.refs[i] = object.NewRef(r.refs[i].Resource, r.refs[i].Namespace(), r.refs[i].Name(), fmt.Sprintf("0b6f3f0e-5d7c-4a53-9a58-%012d", r.rv))
		r.last[i] = r.version(i, r.refs[i])
		return r.object(&object.Delta{Op: object.Created, Ref: r.refs[i], After: r.last[i], ResourceVersion: r.rv})
	}
	r.last[i] = r.version(i, r.refs[i])
	return r.object(&object.Delta{
		Op: object.Updated, Ref: r.refs[i], Before: before, After: r.last[i], ResourceVersion: r.rv, Previous: before.ResourceVersion,
		ChangedBy: []byte(`[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}]`),
	})
}

func (r *Record) version(i int, ref *object.Ref) *object.Object {
	r.rv++
	return object.New(ref, r.rv, 0, r.codecs[i%len(r.codecs)], r.content(ref, r.rv))
}

// content has about as much as a small object has, and something new in each version.
func (r *Record) content(ref *object.Ref, rv uint64) []byte {
	digest := make([]byte, 16)
	for i := range digest {
		digest[i] = byte(r.rng.Uint32())
	}
	name, res := ref.Name(), ref.Resource
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d",`+
		`"creationTimestamp":"2026-11-20T15:00:00Z","labels":{"app":%q,"team":"payments","tier":"backend"}},"spec":{"replicas":%d,`+
		`"template":{"spec":{"containers":[{"name":"web","image":"registry.example/web@sha256:%s","ports":[{"containerPort":8080,`+
		`"protocol":"TCP"}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]}}},"status":{"readyReplicas":%d}}`,
		res.APIVersion(), res.Kind, name, ref.Namespace(), ref.UID, rv, name, rv%9, hex.EncodeToString(digest), rv%7)
}

func (r *Record) object(d *object.Delta) error {
	r.written++
	r.now = r.now.Add(r.step)
	d.Scope = d.Ref.Resource.String()
	if err := r.write(d); err != nil || r.now.Before(r.next) {
		return err
	}
	r.next = r.now.Add(time.Minute)
	return r.progress(false)
}

// progress writes how far the agent has come. It has an entry for each resource, which stands for
// all of its scopes.
func (r *Record) progress(ends bool) error {
	r.reports++
	p := &object.Report{Number: r.reports, Since: r.o.Begin, Ends: ends, To: r.now, SnapshotBegan: r.snapshotBegan}
	if since := r.now.Add(-repeats); since.After(p.Since) {
		p.Since = since
	}
	for _, res := range r.scopes {
		e := object.ScopeReport{Resource: res}
		if !r.snapshotBegan.IsZero() {
			e.ResourceVersion = r.rv
		}
		if !r.o.Begin.Before(p.Since) {
			e.Interruptions = []object.Interruption{{Why: object.InterruptedStart, Until: r.o.Begin}}
		}
		p.Scopes = append(p.Scopes, e)
	}
	return r.write(&object.Delta{Report: p})
}

func (r *Record) stream(s *object.StreamEvent) error {
	s.Scope = s.Resource.String()
	return r.write(&object.Delta{Stream: s})
}

func (r *Record) subjectOf(d *object.Delta) string {
	if d.Report != nil {
		return "kubecdc." + Cluster + ".progress." + writer
	}
	return string(r.subject.Append(nil, d))
}

func (r *Record) write(d *object.Delta) error {
	d.Observed = r.now.UnixNano()
	e := Event{new(encode.Event), r.subjectOf(d), r.now}
	if err := r.enc.Encode(e.Event, d); err != nil {
		return err
	}
	var of Of
	switch {
	case d.Report != nil:
	case d.Stream != nil:
		of.Resource = d.Stream.Resource.String()
	default:
		of = ofRef(d.Ref)
	}
	size := r.sizes[of]
	if size == nil {
		size = &Size{}
		r.sizes[of] = size
	}
	if d.Op != object.Read || size.Versions == 0 { // a later snapshot reads versions that were counted
		size.Versions++
	}
	size.Bytes += int64(len(e.Body) + len(e.Subject) + len(e.ID) + headers)
	return r.put(e)
}
