package publish_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func newEncoder(mode encode.Mode) *encode.Encoder {
	return encode.New(encode.Options{Cluster: "prod-eu-1", ClusterUID: "11e0", Mode: mode, Before: true, Patch: true})
}

// journal records what happened, in order: "bus <event>", "dead <event>", "ack <name>/<rv>".
type journal struct {
	mu      sync.Mutex
	entries []string
	events  map[string]*consume.Event // by entry
	claims  map[string][]byte         // by name
}

func newJournal() *journal {
	return &journal{events: map[string]*consume.Event{}, claims: map[string][]byte{}}
}

func (j *journal) add(entry string, e *consume.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
	j.events[entry] = e
}

// Acked implements object.Acker.
func (j *journal) Acked(d *object.Delta) {
	if d.Stream != nil {
		j.add("ack "+string(d.Stream.Kind), nil)
		return
	}
	if d.Report != nil {
		j.add(fmt.Sprintf("ack progress %d", d.Report.Number), nil)
		return
	}
	j.add(fmt.Sprintf("ack %s/%d", d.Ref.Name(), d.ResourceVersion), nil)
}

// recorder is a Bus that refuses the events that refuse rejects, and records the rest.
type recorder struct {
	j      *journal
	name   string
	refuse func(e *consume.Event, size int) error
}

func (r *recorder) Publish(e *publish.Event) { e.Done(r.take(e.Event)) }

func (*recorder) Run(context.Context) error { return nil }
func (*recorder) Ready() error              { return nil }

func (r *recorder) take(ev *encode.Event) error {
	e, err := read(ev)
	if err != nil {
		return err
	}
	if r.refuse != nil {
		if err := r.refuse(e, ev.Size()); err != nil {
			return fmt.Errorf("publish %s: %w", ev.ID, err)
		}
	}
	r.j.add(r.name+" "+describe(e), e)
	return nil
}

// read returns the event as a consumer reads it.
func read(ev *encode.Event) (*consume.Event, error) {
	header := map[string][]string{"content-type": {ev.ContentType}}
	for _, a := range ev.Attributes {
		header["ce-"+a.Name] = []string{string(a.Value)}
	}
	return consume.FromMessage(header, slices.Clone(ev.Body))
}

// describe returns "web-1/7", "web-1/7 without patch", "gap <dead letter>", "snapshot.started" or
// "progress <number>".
func describe(e *consume.Event) string {
	if e.Progress != nil {
		return fmt.Sprintf("progress %d", e.Progress.Number)
	}
	if e.Data == nil {
		kind := e.Type.Name()
		if e.Stream.DeadLetter != "" {
			return kind + " " + e.Stream.DeadLetter
		}
		return kind
	}
	s := e.Name + "/" + e.ResourceVersion
	if len(e.Data.Truncated) > 0 {
		s += " without " + strings.Join(e.Data.Truncated, ",")
	}
	return s
}

// claimStore keeps claims in memory.
type claimStore struct {
	j   *journal
	err func(name string) error
}

func (c *claimStore) Put(_ context.Context, name, contentType string, body []byte, _ func(string)) (string, error) {
	if c.err != nil {
		if err := c.err(name); err != nil {
			return "", err
		}
	}
	if contentType != "application/cloudevents+json" {
		return "", errors.New("the content type is " + contentType)
	}
	c.j.mu.Lock()
	defer c.j.mu.Unlock()
	c.j.claims[name] = slices.Clone(body)
	return "claim:" + name, nil
}

// change is an update of a pod, of about size bytes in each object; all of its text changes.
func change(j *journal, name string, rv, size int) *object.Delta {
	ref := object.NewRef(pods, "shop", name, "uid-"+name)
	doc := func(rv int, c string) *object.Object {
		return object.New(ref, uint64(rv), 0, nil,
			fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q,"resourceVersion":"%d"},"text":%q}`, name, rv,
				strings.Repeat(c, size)))
	}
	return &object.Delta{
		Op:              object.Updated,
		Ref:             ref,
		Scope:           "pods/shop",
		Before:          doc(rv-1, "a"),
		After:           doc(rv, "b"),
		ResourceVersion: uint64(rv),
		Previous:        uint64(rv - 1),
		Observed:        1,
		Acker:           j,
	}
}

// dispatchAll dispatches the deltas and returns the error of Run.
func dispatchAll(
	tb testing.TB, bus publish.Bus, o publish.Options, mode encode.Mode, reg *prometheus.Registry, log *logBuffer,
	ds ...*object.Delta,
) error {
	tb.Helper()
	q := newQueue()
	for _, d := range ds {
		key := "stream:pods/shop"
		if d.Stream == nil {
			key = d.Ref.Key
		}
		if err := q.Lane("pods").Put(tb.Context(), key, 1, d); err != nil {
			tb.Fatal(err)
		}
	}
	q.Close()
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	if log == nil {
		log = new(logBuffer)
	}
	return publish.NewDispatcher(q, value, newEncoder(mode), bus, o, log.Logger(), publish.NewMetrics(reg)).
		Run(tb.Context())
}

func tooLarge(limit int) func(*consume.Event, int) error {
	return func(_ *consume.Event, size int) error {
		if size > limit {
			return fmt.Errorf("%w: more than %d bytes", publish.ErrTooLarge, limit)
		}
		return nil
	}
}
