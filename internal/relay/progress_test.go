package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var progressBegan = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

// progressOf is the record of the progress of an agent, at a minute after progressBegan.
func progressOf(number, minute int, scopes ...string) string {
	at := progressBegan.Add(time.Duration(minute) * time.Minute)
	return fmt.Sprintf(
		`{"specversion":"1.0","id":"progress/3f0a/0-1/%[1]d","source":"/kubernetes/prod","type":"dev.kubecdc.progress",`+
			`"subject":"/progress/3f0a","time":%[2]q,"cluster":"prod","partitionkey":"prod/progress/3f0a",`+
			`"data":{"writer":"3f0a","run":"0-1","number":%[1]d,"since":%[3]q,"to":%[2]q,"snapshotBegan":"2026-11-20T14:00:00Z","later":[ 1 ],"scopes":[%[4]s]}}`,
		number, at.Format(time.RFC3339), at.Add(-10*time.Minute).Format(time.RFC3339), strings.Join(scopes, ","))
}

const (
	allPods    = `{"resource":"pods","count":3,"resourceVersion":"70"}`
	podsInShop = `{"resource":"pods","scope":"pods/shop","resourceVersion":"71","history":2,"news":[ 1 ],"hidden":[{"from":"2026-11-20T13:00:00Z"}]}`
	podsInBank = `{"resource":"pods","scope":"pods/bank","resourceVersion":"72"}`
	configMaps = `{"resource":"configmaps","resourceVersion":"73"}`
)

// bodies returns the records of progress that were delivered, as they were sent.
func (t *target) bodies(tb testing.TB) []string {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, r := range t.got {
		if r.Event.Progress == nil {
			continue
		}
		raw, err := r.Event.MarshalJSON()
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, string(raw))
	}
	return out
}

func TestProgressOfWhatIsCopiedWhole(t *testing.T) {
	all := progressOf(1, 0, podsInShop, podsInBank, allPods, configMaps)
	for _, c := range []struct {
		name  string
		whole func(resource, scope string) bool
		want  []string
	}{
		{"everything", nil, []string{all}},
		{"a resource", func(resource, _ string) bool {
			return resource == "pods"
		}, []string{progressOf(1, 0, podsInShop, podsInBank, allPods)}},
		{"a scope", func(_, scope string) bool { return scope == "pods/shop" }, []string{progressOf(1, 0, podsInShop)}},
		{
			"all scopes but one: the entry of the others would be about it too",
			func(_, scope string) bool { return scope != "pods/bank" },
			[]string{progressOf(1, 0, podsInShop, configMaps)},
		},
		{"nothing", func(string, string) bool { return false }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &memory{records: []*driver.Record{copyOf(t, 0, 1, 1, all), copyOf(t, 0, 1, 2, event("shop", "a", 1))}}
			to := newTarget()
			r := start(t, relay.Options{Name: "r", Subscription: m, Target: to, Whole: c.whole})
			to.wait(t, len(c.want)+1)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, to.bodies(t)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if m.saved[consume.Log{Name: "t"}] != 2 {
				t.Errorf("saved: %v", m.saved)
			}
		})
	}
}

// A progress says that all before it is there.
func TestProgressWaitsForAllBeforeIt(t *testing.T) {
	for _, patience := range []time.Duration{-1, 50 * time.Millisecond} {
		t.Run(patience.String(), func(t *testing.T) {
			release := make(chan struct{})
			to := newTarget()
			to.before = func(ctx context.Context, r *driver.Record) error {
				if r.Event.Name != "slow" {
					return nil
				}
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			m := &memory{records: []*driver.Record{
				copyOf(t, 0, 1, 1, event("shop", "slow", 1)), copyOf(t, 0, 1, 2, progressOf(1, 0, allPods)),
				copyOf(t, 0, 1, 3, event("shop", "quick", 2)),
			}}
			r := start(t, relay.Options{Name: "r", Subscription: m, Target: to, ProgressWait: patience})
			want := []string{"configmaps/uid-shop-slow/1", "progress/3f0a/0-1/1", "configmaps/uid-shop-quick/2"}
			if patience > 0 { // it is not sent
				to.wait(t, 1)
				want = []string{"configmaps/uid-shop-quick/2", "configmaps/uid-shop-slow/1"}
			} else {
				<-time.After(50 * time.Millisecond) // nothing shows that the relay waits
				if got := to.ids(); len(got) > 0 {
					t.Errorf("delivered while an earlier record waits: %q", got)
				}
			}
			close(release)
			to.wait(t, len(want))
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, to.ids()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// claims returns, for each progress in turn, the entries that say up to where the log has
// everything.
func claims(tb testing.TB, records []string) []string {
	tb.Helper()
	var out []string
	for _, raw := range records {
		e, err := consume.Parse([]byte(raw))
		if err != nil {
			tb.Fatal(err)
		}
		var all []string
		for _, s := range e.Progress.Scopes {
			if s.ResourceVersion != "" {
				all = append(all, s.Resource+s.Scope)
			} else if i := len(s.Hidden); i == 0 || !s.Hidden[i-1].IsOpen() || !s.To.IsZero() ||
				!s.SnapshotBegan.IsZero() || s.History > 0 {
				tb.Errorf("an entry without a claim has no open span, or a part of the claim: %+v", s)
			}
		}
		out = append(out, strings.Join(all, " "))
	}
	return out
}

// newer is an entry of a progress whose last snapshot began at a minute after progressBegan.
func newer(entry string, minute int) string {
	at := progressBegan.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339)
	return strings.TrimSuffix(entry, "}") + fmt.Sprintf(`,"snapshotBegan":%q}`, at)
}

// A relay does not say that the target has what it has skipped, also after a restart, until a later
// snapshot is there.
func TestProgressAfterASkippedRecord(t *testing.T) {
	b, to := newBus(t), newTarget()
	to.before = func(_ context.Context, r *driver.Record) error {
		if r.Event.Name == "poisoned" {
			return fmt.Errorf("%w: it is poisoned", publish.ErrRefused)
		}
		return nil
	}
	run := func(n int, records ...string) {
		t.Helper()
		b.send(records...)
		r := start(t, relay.Options{
			Name:         "r",
			Subscription: b.subscription("r", driver.Beginning),
			Target:       to,
			Refused:      relay.Skip,
		})
		to.wait(t, n)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	// at minute 0
	run(2, progressOf(1, -1, allPods, configMaps), event("shop", "poisoned", 1),
		progressOf(2, 1, podsInShop, allPods, configMaps))
	run(4, progressOf(3, 2, allPods, newer(configMaps, 0)), progressOf(4, 3, allPods, newer(configMaps, 2)))
	if diff := cmp.Diff([]string{"pods configmaps", "podspods/shop pods", "pods", "pods configmaps"},
		claims(t, to.bodies(t))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := `{"resource":"configmaps","hidden":[{"from":"2026-11-20T15:00:00Z"}]}`; !strings.Contains(
		to.bodies(t)[1], want) {
		t.Errorf("want %s in\n%s", want, to.bodies(t)[1])
	}
}

// The content of a record that cannot be read, or that the bus had removed, is not known.
func TestProgressAfterLostRecords(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *bus){
		"unreadable": func(b *bus) { b.send("no JSON") },
		"removed": func(b *bus) {
			b.send(event("shop", "a", 1))
			s, err := b.js.Stream(b.tb.Context(), "KUBECDC")
			if err == nil {
				err = s.Purge(b.tb.Context())
			}
			if err != nil {
				b.tb.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, to := newBus(t), newTarget()
			b.send(progressOf(1, 0, allPods))
			run := func(n int) {
				r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
				to.wait(t, n)
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
			}
			run(1)
			lose(b)
			tomorrow := int(time.Since(progressBegan).Minutes()) + 24*60
			b.send(progressOf(2, 1, podsInShop, configMaps),
				progressOf(3, tomorrow, newer(podsInShop, tomorrow), configMaps))
			run(3)
			got := to.bodies(t)
			if diff := cmp.Diff([]string{"pods", "", "podspods/shop"}, claims(t, got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			const want = `{"resource":"pods","scope":"pods/shop","news":[ 1 ],"hidden":[{"from":"2026-11-20T13:00:00Z"},{"from":"2026-11-20T14:58:00Z"}]}`
			if !strings.Contains(got[1], want) {
				t.Errorf("want %s in\n%s", want, got[1])
			}
		})
	}
}

// forgetful is a subscription whose cursor keeps no note.
type forgetful struct{ *memory }

func (forgetful) Note() (note []byte, known bool) { return nil, false }
func (forgetful) SetNote([]byte)                  {}

func TestProgressIfTheCursorKeepsNoNote(t *testing.T) {
	tomorrow := int(time.Since(progressBegan).Minutes()) + 24*60
	m := &memory{records: []*driver.Record{
		copyOf(t, 0, 1, 1, progressOf(1, 0, allPods)),
		copyOf(t, 0, 1, 2, progressOf(2, tomorrow, newer(allPods, tomorrow))),
	}}
	to := newTarget()
	r := start(t, relay.Options{Name: "r", Subscription: forgetful{m}, Target: to})
	to.wait(t, 2)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "pods"}, claims(t, to.bodies(t))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Each partition has a copy of a progress. The copies of one agent do not overtake those of
// another.
func TestProgressOfAgentsInPartitions(t *testing.T) {
	other := strings.ReplaceAll(progressOf(1, 0, allPods), "3f0a", "ffff")
	first, second := progressOf(1, 0, allPods), progressOf(2, 1, allPods)
	m := &memory{records: []*driver.Record{
		copyOf(t, 0, 2, 1, first), copyOf(t, 0, 2, 2, other), copyOf(t, 1, 2, 1, other), copyOf(t, 1, 2, 2, first),
		copyOf(t, 0, 2, 3, second), copyOf(t, 1, 2, 3, second),
	}}
	to := newTarget()
	r := start(t, relay.Options{Name: "r", Subscription: m, Target: to})
	to.wait(t, 3)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"progress/ffff/0-1/1", "progress/3f0a/0-1/1", "progress/3f0a/0-1/2"},
		to.ids()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A target on JetStream gets progress under the subject of its writer.
func TestProgressGoesToItsSubject(t *testing.T) {
	b, other := newBus(t), newBus(t)
	b.sendTo("kubecdc.prod.progress.3f0a", progressOf(1, 0, allPods))
	to, err := natsbus.New(natsbus.Config{
		URL: other.url, Env: driver.Env{Cluster: "prod"}, Stream: natsconfig.Stream{Name: "KUBECDC"},
	}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	stream, err := other.js.Stream(t.Context(), "KUBECDC")
	if err != nil {
		t.Fatal(err)
	}
	var got *jetstream.RawStreamMsg
	waitFor(t, func() bool {
		got, err = stream.GetLastMsgForSubject(t.Context(), "kubecdc.prod.progress.3f0a")
		return err == nil
	})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if string(got.Data) != progressOf(1, 0, allPods) {
		t.Errorf("got %s", got.Data)
	}
}
