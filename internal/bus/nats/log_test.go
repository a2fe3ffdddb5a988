package nats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// replacement returns the number of the last replacement that a bus has found.
func replacement(r *bustest.NATS) uint64 {
	n, _ := r.Logs().Last(bustest.Pods, "")
	return n
}

// publishAll publishes count events of distinct objects, starting with n.
func publishAll(t *testing.T, r *bustest.NATS, n, count int) {
	t.Helper()
	for i := range count {
		if err := r.Publish(t.Context(), bustest.Event("a", n+i, "x")); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream that is deleted and recreated while the agent runs is a different one, whoever creates
// it.
func TestStreamThatIsCreatedAgainIsNoticed(t *testing.T) {
	for name, operator := range map[string]bool{"by the agent": false, "by the operator": true} {
		t.Run(name, func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
			told := make(chan struct{}, 10)
			r.Logs().OnReplaced(func(string, string) { told <- struct{}{} })
			publishAll(t, r, 1, 10)
			if n := replacement(r); n != 0 {
				t.Fatalf("replacement %d of a stream that was seen for the first time", n)
			}
			old, err := js.Stream(t.Context(), "KUBECDC")
			if err != nil {
				t.Fatal(err)
			}
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			if operator { // And no event arrives meanwhile.
				createAgain(t, js, &old.CachedInfo().Config)
			}
			publishAll(t, r, 11, 10)
			bustest.Wait(t, "the replacement", func() bool { return replacement(r) == 1 })
			<-told
			bustest.Wait(t, "the identity of the new stream", func() bool {
				known := r.Logs().Known()
				return len(known) == 1 && known[0].ID != "" &&
					known[0].ID != old.CachedInfo().Created.UTC().Format(time.RFC3339Nano)
			})
			publishAll(t, r, 21, 10)
			if n := replacement(r); n != 1 {
				t.Errorf("replacement %d, want 1", n)
			}
		})
	}
}

// createAgain recreates a stream that was just deleted. The server may refuse this while it still
// removes the files of the old one.
func createAgain(t *testing.T, js jetstream.JetStream, config *jetstream.StreamConfig) {
	t.Helper()
	const storeFailed = 10049 // JSStreamCreateErrF
	bustest.Wait(t, "the stream is created again", func() bool {
		_, err := js.CreateStream(t.Context(), *config)
		var refused *jetstream.APIError
		if err != nil && (!errors.As(err, &refused) || refused.ErrorCode != storeFailed) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// The next run compares the stream with the one that the last run recorded.
func TestStreamOfTheNextRun(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log
		want    uint64
	}{
		"the same": {between: func(_ *testing.T, _ jetstream.JetStream, known []publish.Log) []publish.Log {
			return known
		}},
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
		"an older agent's checkpoint": {
			between: func(t *testing.T, js jetstream.JetStream, _ []publish.Log) []publish.Log {
				if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
					t.Fatal(err)
				}
				return nil
			},
		},
		"another": {want: 1, between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			return known
		}},
		"another that is longer": {
			want: 1,
			between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
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
			},
		},
		"restored from a backup": {
			want: 1,
			between: func(_ *testing.T, _ jetstream.JetStream, known []publish.Log) []publish.Log {
				known[0].Acked[0] += 5 // The stream is unchanged, and the agent has acknowledgements beyond its end.
				return known
			},
		},
		"another after one that was replaced": {
			want: 8,
			between: func(t *testing.T, js jetstream.JetStream, known []publish.Log) []publish.Log {
				if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
					t.Fatal(err)
				}
				known[0].Replaced = 7
				return known
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			first := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
			publishAll(t, first, 1, 10)
			known := first.Logs().Known()
			first.Stop()
			if len(known) != 1 || len(known[0].Acked) != 1 || known[0].Acked[0] != 10 || known[0].ID == "" {
				t.Fatalf("known: %+v", known)
			}
			known = tc.between(t, js, known)
			second := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()), func(b *natsbus.Bus) {
				b.Logs().Restore(known, 0)
			})
			bustest.Wait(t, "the bus", func() bool { return second.Ready() == nil })
			bustest.Wait(t, "the replacement", func() bool { return replacement(second) == tc.want })
			publishAll(t, second, 11, 3)
			if n := replacement(second); n != tc.want {
				t.Errorf("replacement %d, want %d", n, tc.want)
			}
		})
	}
}
