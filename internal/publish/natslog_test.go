package publish_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// replacement is the number of the last replacement that a publisher has found.
func (r *running) replacement() uint64 {
	n, _ := r.Logs().Last(pods, "")
	return n
}

// publishAll publishes events of objects of their own, from n on.
func (r *running) publishAll(t *testing.T, n, count int) {
	t.Helper()
	for i := range count {
		if err := r.Publish(t.Context(), event("a", n+i, "x")); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream that is deleted while the agent runs is another one when it is there again, whoever creates it.
func TestStreamThatIsCreatedAgainIsNoticed(t *testing.T) {
	for name, operator := range map[string]bool{"by the agent": false, "by the operator": true} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, t.TempDir(), -1)
			js := admin(t, s.ClientURL())
			r := run(t, testConfig(s.ClientURL()))
			told := make(chan struct{}, 10)
			r.Logs().OnReplaced(func(string, string) { told <- struct{}{} })
			r.publishAll(t, 1, 10)
			if n := r.replacement(); n != 0 {
				t.Fatalf("replacement %d of a stream that was seen for the first time", n)
			}
			old, err := js.Stream(t.Context(), "KUBECDC")
			if err != nil {
				t.Fatal(err)
			}
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			if operator { // And no event comes meanwhile.
				createAgain(t, js, &old.CachedInfo().Config)
			}
			r.publishAll(t, 11, 10)
			wait(t, "the replacement", func() bool { return r.replacement() == 1 })
			<-told
			wait(t, "the identity of the new stream", func() bool {
				known := r.Logs().Known()
				return len(known) == 1 && known[0].ID != "" && known[0].ID != old.CachedInfo().Created.UTC().Format(time.RFC3339Nano)
			})
			r.publishAll(t, 21, 10)
			if n := r.replacement(); n != 1 {
				t.Errorf("replacement %d, want 1", n)
			}
		})
	}
}

// createAgain creates a stream that was just deleted. The server may refuse this while it still removes the files of the old one.
func createAgain(t *testing.T, js jetstream.JetStream, config *jetstream.StreamConfig) {
	t.Helper()
	const storeFailed = 10049 // JSStreamCreateErrF
	wait(t, "the stream is created again", func() bool {
		_, err := js.CreateStream(t.Context(), *config)
		var refused *jetstream.APIError
		if err != nil && (!errors.As(err, &refused) || refused.ErrorCode != storeFailed) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// What the next run finds is compared with what the last one left.
func TestStreamOfTheNextRun(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log
		want    uint64
	}{
		"the same": {between: func(_ *testing.T, _ jetstream.JetStream, known []publish.Log) []publish.Log { return known }},
		"purged": {between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
			s, err := js.Stream(t.Context(), "KUBECDC")
			if err == nil {
				err = s.Purge(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			return known
		}},
		"an older agent's checkpoint": {between: func(t *testing.T, js jetstream.JetStream, _ []publish.Log) []publish.Log {
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			return nil
		}},
		"another": {want: 1, between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			return known
		}},
		"another that is longer": {want: 1, between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
			s, err := js.Stream(t.Context(), "KUBECDC")
			if err == nil {
				err = js.DeleteStream(t.Context(), "KUBECDC")
			}
			if err == nil {
				createAgain(t, js, &s.CachedInfo().Config)
			}
			for i := 0; i < 20 && err == nil; i++ {
				_, err = js.Publish(t.Context(), "kubecdc.prod-eu-1.other", nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			return known
		}},
		"restored from a backup": {want: 1, between: func(_ *testing.T, _ jetstream.JetStream, known []publish.Log) []publish.Log {
			known[0].Acked[0] += 5 // The stream is as it was, and the agent knows of more.
			return known
		}},
		"another after one that was replaced": {want: 8, between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			known[0].Replaced = 7
			return known
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, t.TempDir(), -1)
			js := admin(t, s.ClientURL())
			first := run(t, testConfig(s.ClientURL()))
			first.publishAll(t, 1, 10)
			known := first.Logs().Known()
			first.stop()
			if len(known) != 1 || len(known[0].Acked) != 1 || known[0].Acked[0] != 10 || known[0].ID == "" {
				t.Fatalf("known: %+v", known)
			}
			known = tc.between(t, js, known)
			second := runAfter(t, testConfig(s.ClientURL()), known)
			wait(t, "the bus", func() bool { return second.Ready() == nil })
			wait(t, "the replacement", func() bool { return second.replacement() == tc.want })
			second.publishAll(t, 11, 3)
			if n := second.replacement(); n != tc.want {
				t.Errorf("replacement %d, want %d", n, tc.want)
			}
		})
	}
}

// runAfter is run for a publisher that knows what the last run left.
func runAfter(t *testing.T, cfg publish.NATSConfig, known []publish.Log) *running {
	t.Helper()
	r := &running{log: new(logBuffer), done: make(chan struct{})}
	n, err := publish.NewNATS(cfg, r.log.Logger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Logs().Remember(known, 0)
	r.NATS = n
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.err = n.Run(ctx)
	}()
	r.stop = func() { cancel(); <-r.done }
	t.Cleanup(r.stop)
	return r
}

// A broker that lags behind reports the log before after the replacement was noticed by an acknowledgement: that is no second one.
func TestLogIsReplacedOnceBesideABrokerThatLags(t *testing.T) {
	l, replaced := publish.NewLog("x"), 0
	l.OnReplaced(func(string, string) { replaced++ })
	l.Looked("old")
	l.WentBack()
	if !l.Looked("old") {
		t.Error("the identity of the log before is taken at once")
	}
	l.Looked("new")
	if replaced != 1 {
		t.Errorf("replaced %d times, want once", replaced)
	}
	if known := l.Known(); len(known) != 1 || known[0].ID != "new" {
		t.Errorf("known: %+v", known)
	}
}
