package consume_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	sparseRecords = 24_000
	sparseEvery   = 100 // every sparseEvery-th record is of the pod
)

// fillSparse writes records to the stream, a few of them of pods, and returns the numbers of these.
func fillSparse(t *testing.T, js jetstream.JetStream) (wanted []int) {
	t.Helper()
	for n := 1; n <= sparseRecords; n++ {
		subject, body := "kubecdc.x.other", []byte(nil)
		if n%sparseEvery == 0 {
			subject, body = "kubecdc.x.object.core.pods.shop.web", pod(n)
			wanted = append(wanted, n)
		}
		if _, err := js.PublishAsync(subject, body, jetstream.WithStallWait(30*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not acknowledge the records")
	}
	return wanted
}

var sparse = []string{"kubecdc.x.object.core.pods.shop.web", "kubecdc.x.stream.core.pods"}

// Several consumers read the few matching records of a long stream in parallel, in the order of the stream.
func TestJetStreamSegments(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	want := fillSparse(t, js)
	consumers := func() int {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Consumers
	}
	for _, c := range []struct {
		name  string
		start consume.Start
		want  []int
	}{
		{"from the beginning", consume.Beginning(), want},
		{"from a position", after(2*sparseEvery - 1), want[1:]},
		{"from a time", consume.Since(time.Now().Add(-time.Hour)), want},
	} {
		r, err := (&consume.JetStream{URL: b.ClientURL(), Subjects: sparse}).Read(t.Context(), consume.Query{Start: c.start, StopAtEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := consumers(); got < 2 {
			t.Errorf("%s: %d consumers, want several", c.name, got)
		}
		if diff := cmp.Diff(c.want, read(t, r, -1)); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
		if err := r.Close(); err != nil || consumers() > 0 {
			t.Errorf("%s: %v; %d consumers are left", c.name, err, consumers())
		}
	}

	// A single consumer reads a query that has no end.
	r := open(t, consume.JetStream{URL: b.ClientURL(), Subjects: sparse}, consume.Query{Start: consume.Beginning()})
	if diff := cmp.Diff(want, read(t, r, len(want))); diff != "" || consumers() != 1 {
		t.Errorf("%d consumers, -want +got\n%s", consumers(), diff)
	}
}

// A reader that loses its server within a segment reads each record once, in order.
func TestJetStreamSegmentsAfterARestart(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	want := fillSparse(t, js)
	r := open(t, consume.JetStream{URL: b.ClientURL(), Subjects: sparse}, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	got := read(t, r, len(want)/3)
	b.stop()
	b.start()
	if diff := cmp.Diff(want, append(got, read(t, r, -1)...)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// If the stream removes records of a segment while the server is away, they count as missed, and not as records that do not match.
func TestJetStreamSegmentsRemoved(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	want := fillSparse(t, js)
	r := open(t, consume.JetStream{URL: b.ClientURL(), Subjects: sparse}, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	read(t, r, 10)
	b.stop()
	b.start()
	const first = sparseRecords/2 + 1
	until(t, "the records are removed", func() bool { return stream.Purge(t.Context(), jetstream.WithPurgeSequence(first)) == nil })
	last, told := 10*sparseEvery, false
	for {
		e, err := r.Next(t.Context())
		missed := new(consume.MissedError)
		switch {
		case errors.Is(err, io.EOF):
			if last != want[len(want)-1] || !told {
				t.Errorf("the last record is %d; missed: %v", last, told)
			}
			return
		case errors.As(err, &missed):
			if told = true; missed.From > uint64(last+1) || missed.To != first-1 {
				t.Errorf("%v after record %d, want up to record %d", err, last, first-1)
			}
		case err != nil:
			t.Fatal(err)
		default:
			n := int(number(e.Sequence))
			if n != last+sparseEvery && !told {
				t.Errorf("record %d follows record %d", n, last)
			}
			last = n
		}
	}
}
