package publish_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const progressDropped = "kubecdc_publish_progress_dropped_total"

// report is the progress number n of an agent with many scopes.
func report(j *journal, n uint64, scopes int) *object.Delta {
	d := bustest.Progress(n)
	for i := range scopes {
		d.Report.Scopes = append(d.Report.Scopes, bustest.ScopeAt(pods, fmt.Sprint("pods/n", i), 7))
	}
	d.Acker = j
	return d
}

// writing is an encoder that knows the writer, without it progress cannot be encoded.
func writing(writer string) *encode.Encoder {
	return encode.New(encode.Options{
		Cluster:     "prod-eu-1",
		ClusterUID:  "11e0",
		Writer:      writer,
		Run:         "0-1",
		SampleRatio: 1,
	})
}

func dispatcherOf(
	q *queue.Queue[*object.Delta], e publish.Encoder, bus publish.Bus, o publish.Options, reg *prometheus.Registry,
	log *logBuffer,
) *publish.Dispatcher[*queue.Item[*object.Delta]] {
	return publish.NewDispatcher(q, value, e, bus, o, log.Logger(), publish.NewMetrics(reg))
}

// Progress is acknowledged and counted like other events. It waits for no stream event, is not
// traced, and is no change whose lag counts.
func TestProgressIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		reg := prometheus.NewRegistry()
		log := new(logBuffer)
		c := new(captures)
		held := make(chan struct{})
		take := &recorder{j: j, name: "bus"}
		bus := eventFunc(func(e *publish.Event) {
			if e.Delta.Stream != nil {
				go func() {
					<-held
					take.Publish(e)
				}()
				return
			}
			take.Publish(e)
		})
		q := newQueue()
		started := &object.Delta{Observed: 1, Acker: j, Stream: &object.StreamEvent{
			Kind: object.SnapshotStarted, Resource: pods, Scope: "pods", Snapshot: "s1", ResourceVersion: 7,
		}}
		for key, d := range map[string]*object.Delta{"stream:pods": started, "progress": report(j, 3, 2)} {
			if err := q.Lane("pods").Put(t.Context(), key, 1, d); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() {
			done <- dispatcherOf(q, writing(bustest.Writer), bus, publish.Options{Tracer: c}, reg, log).
				Run(t.Context())
		}()
		synctest.Wait()
		if diff := cmp.Diff([]string{"bus progress 3", "ack progress 3"}, j.entries); diff != "" {
			t.Error(diff)
		}
		close(held)
		q.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := bustest.Metric(t, reg, "kubecdc_publish_events_total", "progress"); got != 1 {
			t.Errorf("%v events of progress are counted", got)
		}
		if lags, _ := histogram(t, reg, "kubecdc_publish_lag_seconds"); lags != 0 || len(c.all) != 0 {
			t.Errorf("%d lags, %d captures", lags, len(c.all))
		}
		for _, reason := range []string{"too_large", "refused", "encode"} {
			if got := bustest.Metric(t, reg, progressDropped, reason); got != 0 {
				t.Errorf("%v dropped: %s", got, reason)
			}
		}
	})
}

// histogram returns how many values were observed, and their sum.
func histogram(tb testing.TB, reg *prometheus.Registry, name string) (count uint64, sum float64) {
	tb.Helper()
	families, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	tb.Fatalf("no histogram %s", name)
	return 0, 0
}

// Progress that the bus refuses, or that cannot be encoded, is dropped: it is acknowledged, and
// nothing is shortened or goes to the dead letters. The events around it arrive.
func TestRefusedProgressIsDropped(t *testing.T) {
	refusal := func(err error) func(*consume.Event, int) error {
		return func(e *consume.Event, _ int) error {
			if e.Progress != nil {
				return err
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		writer, reason string
		o              publish.Options
		refuse         func(*consume.Event, int) error
	}{
		"event.maxBytes":   {bustest.Writer, "too_large", publish.Options{MaxEventBytes: 2000}, nil},
		"the bus's limit":  {bustest.Writer, "too_large", publish.Options{}, refusal(publish.ErrTooLarge)},
		"refused":          {bustest.Writer, "refused", publish.Options{}, refusal(publish.ErrRefused)},
		"it has no writer": {"", "encode", publish.Options{}, nil},
		"another way to refuse": {bustest.Writer, "refused", publish.Options{
			Refused: func(*object.Delta, error) error {
				return errors.New("ended by the progress")
			},
		}, refusal(publish.ErrRefused)},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			reg := prometheus.NewRegistry()
			log := new(logBuffer)
			letters := &recorder{j: j, name: "dead"}
			c.o.Oversize, c.o.Claims = allOversize, &claimStore{j: j}
			if c.o.Refused == nil {
				c.o.DeadLetters = letters
			}
			q := newQueue()
			for _, d := range []*object.Delta{
				change(j, "web-1", 6, 10), report(j, 1, 60), report(j, 2, 60), change(j, "web-1", 7, 10),
			} {
				if err := q.Lane("pods").Put(t.Context(), "one key", 1, d); err != nil {
					t.Fatal(err)
				}
			}
			q.Close()
			bus := &recorder{j: j, name: "bus", refuse: c.refuse}
			if err := dispatcherOf(q, writing(c.writer), bus, c.o, reg, log).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []string{
				"bus web-1/6", "ack web-1/6", "ack progress 1", "ack progress 2", "bus web-1/7", "ack web-1/7",
			}
			if diff := cmp.Diff(want, j.entries); diff != "" {
				t.Error(diff)
			}
			for _, reason := range []string{"too_large", "refused", "encode"} {
				want := 0.0
				if reason == c.reason {
					want = 2
				}
				if got := bustest.Metric(t, reg, progressDropped, reason); got != want {
					t.Errorf("%v were dropped as %s, want %v", got, reason, want)
				}
			}
			if lines(log.String(), "progress of the agent was dropped") != 1 ||
				lines(log.String(), "reason="+c.reason) != 1 {
				t.Errorf("log:\n%s", log)
			}
			if got := bustest.Metric(t, reg, "kubecdc_publish_events_total", "progress"); got != 0 {
				t.Errorf("%v events of progress count as acknowledged", got)
			}
		})
	}
}

// A bus that is away delays progress like other events, and its end ends the agent.
func TestProgressIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		reg := prometheus.NewRegistry()
		log := new(logBuffer)
		tries := 0
		bus := &recorder{j: j, name: "bus", refuse: func(*consume.Event, int) error {
			tries++
			if tries < 3 {
				return &publish.RetryError{Reason: publish.ReasonStreamFull, Err: errors.New("full")}
			}
			return nil
		}}
		q := newQueue()
		put := func(d *object.Delta) {
			if err := q.Lane("progress").Put(t.Context(), "progress", 1, d); err != nil {
				t.Fatal(err)
			}
		}
		put(report(j, 1, 1))
		q.Close()
		if err := dispatcherOf(q, writing(bustest.Writer), bus, publish.Options{}, reg, log).
			Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"bus progress 1", "ack progress 1"}, j.entries); diff != "" || tries != 3 {
			t.Errorf("%d attempts\n%s", tries, diff)
		}
		q = newQueue()
		put(report(j, 2, 1))
		gone := busFunc(func(context.Context, *encode.Event) error { return publish.ErrClosed })
		if err := dispatcherOf(q, writing(bustest.Writer), gone, publish.Options{}, prometheus.NewRegistry(), log).
			Run(t.Context()); !errors.Is(err, publish.ErrClosed) {
			t.Errorf("got %v, want %v", err, publish.ErrClosed)
		}
	})
}

// Progress that connections break at is sent alone. An operator drops it, with or without dead
// letters.
func TestOperatorDropsProgress(t *testing.T) {
	for _, letters := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal()
			reg := prometheus.NewRegistry()
			log := new(logBuffer)
			taker := &recorder{j: j, name: "bus"}
			bus := eventFunc(func(e *publish.Event) {
				if e.Delta.Report != nil && e.Delta.Report.Number == 1 {
					e.Done(&publish.RetryError{Reason: publish.ReasonConnection, Alone: true, Err: errors.New("cut")})
					return
				}
				taker.Publish(e)
			})
			q := newQueue()
			for n := range uint64(2) {
				if err := q.Lane("progress").Put(t.Context(), "progress", 1, report(j, n+1, 1)); err != nil {
					t.Fatal(err)
				}
			}
			var o publish.Options
			if letters {
				o.DeadLetters = &recorder{j: j, name: "dead"}
			}
			d := dispatcherOf(q, writing(bustest.Writer), bus, o, reg, log)
			done := make(chan error, 1)
			go func() { done <- d.Run(t.Context()) }()
			pause(time.Minute)
			synctest.Wait()
			stuck := d.Stuck()
			if len(stuck) != 1 || stuck[0].Resource != "progress" || stuck[0].Name != bustest.Writer ||
				!stuck[0].Alone {
				t.Fatalf("stuck: %+v", stuck)
			}
			if err := d.DeadLetter(stuck[0].ID); err != nil {
				t.Fatal(err)
			}
			q.Close()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"ack progress 1", "bus progress 2", "ack progress 2"}, j.entries); diff != "" {
				t.Error(diff)
			}
			dropped := bustest.Metric(t, reg, progressDropped, "refused")
			isolated := bustest.Metric(t, reg, "kubecdc_publish_isolated_events", "")
			if dropped != 1 || isolated != 0 || !strings.Contains(log.String(), "dropped by an operator") {
				t.Errorf("dropped %v, isolated %v, log:\n%s", dropped, isolated, log)
			}
		})
	}
}
