package publish_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/claim"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// captures is a Tracer that keeps all captures.
type captures struct {
	mu  sync.Mutex
	all []*publish.Capture
}

func (c *captures) Captured(one *publish.Capture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

// steps returns the names of the steps of a capture.
func steps(c *publish.Capture) []string {
	var names []string
	for _, s := range c.Stages {
		name := s.Name
		if s.Err != nil {
			name += " failed"
		}
		names = append(names, name)
	}
	return names
}

func tracing(ratio float64) *encode.Encoder {
	return encode.New(encode.Options{
		Cluster:     "prod-eu-1",
		ClusterUID:  "11e0",
		Before:      true,
		Patch:       true,
		SampleRatio: ratio,
	})
}

// created is the creation of an object whose spec is a text of the given size.
func created(name string, rv uint64, size int) *object.Delta {
	ref := object.NewRef(pods, "shop", name, "uid-"+name)
	doc := fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d"},"spec":{"x":"%0*d"}}`,
		name, ref.UID, rv, size, 1)
	return &object.Delta{
		Op:              object.Created,
		Ref:             ref,
		ResourceVersion: rv,
		After:           object.New(ref, rv, 0, nil, doc),
		Observed:        time.Now().Add(-time.Second).UnixNano(),
		Scope:           "pods",
	}
}

// dispatchEach dispatches ds until all are done.
func dispatchEach(t *testing.T, e publish.Encoder, bus publish.Bus, o publish.Options, ds ...*object.Delta) error {
	t.Helper()
	q := newQueue()
	for i, d := range ds {
		if err := q.Lane("pods").Put(t.Context(), fmt.Sprint(i), 1, d); err != nil {
			t.Fatal(err)
		}
	}
	q.Close()
	return publish.NewDispatcher(q, value, e, bus, o, discard, nil).Run(t.Context())
}

func TestTracerIsToldOfTracedEvents(t *testing.T) {
	var c captures
	bus := busFunc(func(context.Context, *encode.Event) error { return nil })
	d := created("web-1", 7, 10)
	progress := &object.Delta{Observed: 1, Stream: &object.StreamEvent{
		Kind:            object.ScopeStarted,
		Resource:        pods,
		Scope:           "pods",
		ResourceVersion: 9,
	}}
	if err := dispatchEach(t, tracing(1), bus, publish.Options{Tracer: &c}, d, progress); err != nil {
		t.Fatal(err)
	}
	if len(c.all) != 1 {
		t.Fatalf("told of %d events, want one: that of the object", len(c.all))
	}
	got := c.all[0]
	if got.ID != "pods/uid-web-1/7" || got.Source != "/kubernetes/prod-eu-1" || got.Ref != d.Ref || got.Version != 7 ||
		got.Op != object.Created || got.Err != nil {
		t.Errorf("%+v", got)
	}
	if d := cmp.Diff([]string{"encode", "publish"}, steps(got)); d != "" {
		t.Error(d)
	}
	at := []time.Time{
		got.Observed, got.Taken, got.Stages[0].Start, got.Stages[0].End, got.Stages[1].Start, got.Stages[1].End,
		got.End,
	}
	if !slices.IsSortedFunc(at, time.Time.Compare) || got.Observed.UnixNano() != d.Observed {
		t.Errorf("these times are not in order: %v", at)
	}

	c.all = nil
	if err := dispatchEach(t, tracing(0), bus, publish.Options{Tracer: &c}, created("web-2", 7, 10)); err != nil ||
		len(c.all) > 0 {
		t.Errorf("none is to be traced: told of %d, error %v", len(c.all), err)
	}
}

func TestTracerIsToldWhatAnEventGivesUp(t *testing.T) {
	var c captures
	small := busFunc(func(_ context.Context, ev *encode.Event) error {
		if ev.Size() > 4000 {
			return publish.ErrTooLarge
		}
		return nil
	})
	letters := busFunc(func(context.Context, *encode.Event) error { return nil })
	o := publish.Options{Tracer: &c, DeadLetters: letters}
	if err := dispatchEach(t, tracing(1), small, o, created("large", 7, 5000)); err != nil {
		t.Fatal(err)
	}
	directory, err := claim.NewDirectory(t.TempDir(), nil, discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Oversize, o.Claims = []string{publish.Reference}, directory
	if err := dispatchEach(t, tracing(1), small, o, created("large", 7, 5000)); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"encode", "publish failed", "dead_letter", "gap"},
		{"encode", "publish failed", "claim", "publish"},
	}
	var got [][]string
	for _, one := range c.all {
		got = append(got, steps(one))
		if one.Err != nil {
			t.Errorf("the event has gone its way, and counts as failed: %v", one.Err)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTracerIsToldOfAnEventThatIsGivenUp(t *testing.T) {
	var c captures
	gone := errors.New("the bus is gone")
	bus := busFunc(func(context.Context, *encode.Event) error { return gone })
	if err := dispatchEach(t, tracing(1), bus, publish.Options{Tracer: &c}, created("web-1", 7, 10)); !errors.Is(err,
		gone) {
		t.Fatalf("got %v", err)
	}
	if len(c.all) != 1 || !errors.Is(c.all[0].Err, gone) {
		t.Errorf("told of %d", len(c.all))
	}
}

// After the stream is deleted, publishing gets no responders until a stream takes the subject
// again.
func TestTracerIsToldOfAttempts(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	js := admin(t, s.ClientURL())
	var c captures
	if err := dispatchEach(t, tracing(1), r.Bus, publish.Options{Tracer: &c}, created("web-1", 1, 10)); err != nil {
		t.Fatal(err)
	}
	if n := c.all[0].Stages[1].Failed; n != 0 {
		t.Fatalf("%d failed attempts while all is well", n)
	}
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	if err := dispatchEach(t, tracing(1), r.Bus, publish.Options{Tracer: &c}, created("web-2", 2, 10)); err != nil {
		t.Fatal(err)
	}
	got := c.all[1].Stages[1]
	if got.Failed == 0 || got.Failures[0].Reason != "no_responders" || got.Failures[0].At.Before(got.Start) ||
		got.Failures[0].At.After(got.End) {
		t.Errorf("got %+v", got)
	}
}

// BenchmarkDispatcherTraced measures the path of an event through a dispatcher to a bus that takes
// everything: without a tracer, with one that traces nothing, and with events traced.
func BenchmarkDispatcherTraced(b *testing.B) {
	bus := busFunc(func(context.Context, *encode.Event) error { return nil })
	for _, bc := range []struct {
		name  string
		ratio float64
		o     publish.Options
	}{
		{"off", 0, publish.Options{}},
		{"on-0", 0, publish.Options{Tracer: nobody{}}},
		{"on-0.01", 0.01, publish.Options{Tracer: nobody{}}},
		{"on-1", 1, publish.Options{Tracer: nobody{}}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			s := &endless{d: created("web-1", 1, 3000), n: b.N}
			if err := publish.NewDispatcher(s, func(d *object.Delta) *object.Delta { return d }, tracing(bc.ratio), bus,
				bc.o, discard, nil).Run(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

type nobody struct{}

func (nobody) Captured(*publish.Capture) {}

// endless hands out the same delta n times, each time with a new resourceVersion, to one worker.
type endless struct {
	d *object.Delta
	n int
}

func (s *endless) Get(context.Context) (*object.Delta, error) {
	if s.n == 0 {
		return nil, errors.New("that was all")
	}
	s.n--
	s.d.ResourceVersion++
	return s.d, nil
}

func (*endless) Done(...*object.Delta)       {}
func (*endless) Resize(*object.Delta, int64) {}
func (*endless) Suspend(*object.Delta)       {}
func (*endless) Resume(*object.Delta)        {}

// An event may be retried for hours. All failures are counted, and a bounded number is kept.
func TestStepKeepsTheFirstFailures(t *testing.T) {
	for _, failures := range []int{0, 1, publish.MaxFailures, publish.MaxFailures + 1, 1000} {
		s := publish.StageOf(failures)
		if s.Failed != failures || len(s.Failures) != min(failures, publish.MaxFailures) {
			t.Errorf("of %d failures, %d are counted and %d kept", failures, s.Failed, len(s.Failures))
		}
	}
}
