package fromnats_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// resumeWithin is the time after the death of a path, or its return, within which reading resumes.
const resumeWithin = 20 * time.Second

// A path dies silently while a reader waits for records. It is dead for connections that are open,
// or for all during half a minute.
func TestJetStreamPathThatDiesSilently(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", all), func(t *testing.T) {
			if all && testing.Short() {
				t.Skip("takes 40 s")
			}
			t.Parallel()
			b := startBus(t)
			_, js := b.client()
			b.stream(js, fromnats.DefaultStream)
			put(t, js, 1, 1)
			path := bustest.StartProxy(t, b.Addr().String())
			r, err := (&fromnats.JetStream{URL: path.URL()}).Read(t.Context(), consume.Query{
				Start: consume.Beginning(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := r.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			path.Swallow(all)
			from := time.Now()
			if all {
				from = from.Add(30 * time.Second)
				heal := time.AfterFunc(time.Until(from), func() { path.Swallow(false) })
				defer heal.Stop()
			}
			put(t, js, 2, 2)
			wantNext(t, r, "pods/1/2", from)
		})
	}
}

// wantNext fails the test unless the reader returns an event within resumeWithin of a moment.
func wantNext(t *testing.T, r consume.Reader, id string, from time.Time) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), from.Add(resumeWithin))
	defer cancel()
	e, err := r.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if e.ID != id {
		t.Errorf("got %s, want %s", e.ID, id)
	}
	t.Logf("reading resumed after %s", time.Since(from).Round(100*time.Millisecond))
}

// The server does not detect that the old connection is dead. It must not deliver to a request of
// that connection what it takes back for the new one.
func TestRunOnAPathThatDiesSilently(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 1)
	path := bustest.StartProxy(t, b.Addr().String())
	var died time.Time
	done := errors.New("done")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("no record arrived"))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := fromnats.Run(ctx, fromnats.RunOptions{JetStream: fromnats.JetStream{
		URL: path.URL(),
	}, Start: consume.Beginning(), Durable: "d"},
		func(_ context.Context, e *consume.Event) error {
			if e.ID == "pods/1/2" {
				end(done)
				return nil
			}
			path.Swallow(false)
			died = time.Now()
			put(t, js, 2, 2)
			return nil
		})
	took := time.Since(died)
	if !errors.Is(err, done) || took > resumeWithin {
		t.Errorf("resumed after %s: %v", took, err)
	}
}

// A user may send fewer pings. Their interval extends the limit, so that a quiet connection is
// kept.
func TestReaderWithFewerPingsKeepsItsConnection(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 1)
	lost := make(chan error, 1)
	r, err := (&fromnats.JetStream{URL: b.ClientURL(), Options: []nats.Option{
		nats.PingInterval(12 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { lost <- err }),
	}}).Read(t.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	select { // no subscription is left whose heartbeats are data
	case err := <-lost:
		t.Errorf("connection lost: %v", err)
	case <-time.After(13 * time.Second):
	}
	_ = r.Close()
}
