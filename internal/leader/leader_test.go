package leader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/leader"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	duration = 6 * time.Second
	deadline = 4 * time.Second
	retry    = time.Second
)

var errAway = errors.New("connection refused")

// agent is a running elector.
type agent struct {
	*leader.Elector
	log  *logBuffer
	stop context.CancelFunc
	end  chan error // receives the result of Run
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, name string, c *leader.Client, now func() leader.Instant) *agent {
	t.Helper()
	return startWith(t, name, leader.Options{LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry}, c,
		now)
}

// startWith is start with other durations.
func startWith(t *testing.T, name string, o leader.Options, c *leader.Client, now func() leader.Instant) *agent {
	t.Helper()
	a := &agent{log: new(logBuffer), end: make(chan error, 1)}
	o.Namespace = "kubecdc"
	o.Name = "kubecdc"
	o.Identity = name
	o.Log = slog.New(slog.NewTextHandler(a.log, nil))
	a.Elector = leader.NewWith(o, c, now)
	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	go func() { a.end <- a.Run(ctx) }()
	return a
}

// passes reports whether the fence is open now.
func (a *agent) passes() bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return a.Fence().Pass(ended) == nil
}

// took waits until a leads, and returns how long that took.
func (a *agent) took(t *testing.T) (leader.Term, time.Duration) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	term, err := a.Wait(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, a.log)
	}
	return term, time.Since(began)
}

func pass(d time.Duration) { <-time.After(d) }

// waitFor waits for d, or until ctx ends. It never creates a timer that has already expired. With
// the race detector of Go 1.26, the runtime crashes if two goroutines of a bubble receive from such
// timers at the same moment, because they share one race context.
func waitFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bubble runs f in a bubble of synctest, with its own time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestTheFirstCreatesTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		asked := make(chan struct{})
		a := start(t, "a", &leader.Client{Server: s, Before: func(context.Context, string) error {
			<-asked
			return nil
		}}, nil)
		if err := a.Ready(); err == nil ||
			!strings.Contains(err.Error(), "the Lease kubecdc/kubecdc was not read yet") {
			t.Errorf("ready before the Lease was seen: %v", err)
		}
		close(asked)
		term, took := a.took(t)
		if term.Epoch != 2 || took != duration || !a.passes() {
			t.Errorf("epoch %d after %v, passes: %t", term.Epoch, took, a.passes())
		}
		b := start(t, "b", &leader.Client{Server: s}, nil)
		pass(time.Minute)
		if st := b.Status(); b.Ready() != nil || st.String() != "standby, a leads" || b.passes() {
			t.Errorf("%v, %v, passes: %t", b.Ready(), st, b.passes())
		}
		if st := a.Status(); st.String() != "leads, epoch 2" || a.Ready() != nil {
			t.Errorf("%v, %v", st, a.Ready())
		}
		spec := s.Spec()
		if age := time.Since(spec.RenewTime.Time); spec.HolderIdentity != "a" || spec.LeaseDurationSeconds != 6 ||
			age > retry || spec.LeaseTransitions != 1 {
			t.Errorf("%+v", spec)
		}
		end(t, a, b)
	})
}

// end ends agents in order.
func end(t *testing.T, agents ...*agent) {
	t.Helper()
	for _, a := range agents {
		a.stop()
		if err := <-a.end; err != nil && !errors.Is(err, leader.ErrLost) {
			t.Error(err)
		}
	}
}

func TestReleasedLeaseIsTakenWithinAMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		b := start(t, "b", &leader.Client{Server: s}, nil)
		pass(10 * time.Second)
		a.stop()
		if err := <-a.end; err != nil || !a.passes() {
			t.Fatalf("%v, passes before it is given back: %t", err, a.passes())
		}
		if err := a.Release(t.Context()); err != nil || a.passes() {
			t.Fatalf("%v, passes: %t", err, a.passes())
		}
		if err := a.Fence().Pass(t.Context()); !errors.Is(err, leader.ErrLost) {
			t.Errorf("Pass behind Release: %v", err)
		}
		if term, took := b.took(t); term.Epoch != 3 || took > retry {
			t.Errorf("epoch %d after %v", term.Epoch, took)
		}
		end(t, b)
	})
}

// A leader that is killed stops at once, without releasing the Lease.
func TestKilledLeaderIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		b := start(t, "b", &leader.Client{Server: s}, nil)
		pass(10 * time.Second)
		end(t, a)
		if term, took := b.took(t); term.Epoch != 3 || took > duration+retry {
			t.Errorf("epoch %d after %v", term.Epoch, took)
		}
		end(t, b)
	})
}

// wall returns a client whose connection to the server can be cut.
func wall(s *leader.Server) (c *leader.Client, cut func(bool)) {
	var mu sync.Mutex
	var away bool
	client := &leader.Client{Server: s, Before: func(context.Context, string) error {
		mu.Lock()
		defer mu.Unlock()
		if away {
			return errAway
		}
		return nil
	}}
	return client, func(c bool) {
		mu.Lock()
		defer mu.Unlock()
		away = c
	}
}

func TestPartitionedLeaderIsSilentBeforeAnotherBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		c, cut := wall(s)
		a := start(t, "a", c, nil)
		a.took(t)
		b := start(t, "b", &leader.Client{Server: s}, nil)
		pass(10 * time.Second)
		cut(true)
		began := time.Now()
		for a.passes() {
			if b.passes() {
				t.Fatal("both pass")
			}
			pass(10 * time.Millisecond)
		}
		silent := time.Since(began)
		if silent > deadline {
			t.Errorf("it passes for %v without an API server", silent)
		}
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "publishing pauses: connection refused") {
			t.Errorf("ready: %v", err)
		}
		if term, _ := b.took(t); term.Epoch != 3 || time.Since(began) > duration+retry || time.Since(began) < silent {
			t.Errorf("epoch %d after %v", term.Epoch, time.Since(began))
		}
		blocked := make(chan error, 1)
		go func() { blocked <- a.Fence().Pass(t.Context()) }()
		cut(false)
		if err := <-a.end; !errors.Is(err, leader.ErrLost) || !strings.Contains(err.Error(), `"b" holds the Lease`) {
			t.Errorf("Run: %v", err)
		}
		if err := <-blocked; !errors.Is(err, leader.ErrLost) {
			t.Errorf("a call that waited: %v", err)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if spec := s.Spec(); spec.HolderIdentity != "b" {
			t.Errorf("the lost leader has taken the Lease back: %+v", spec)
		}
		end(t, b)
	})
}

// An API server that is down for everyone does not change the leader: the fence opens again, in the
// same term.
func TestLeaderGoesOnWhereNobodyHasLed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		c, cut := wall(s)
		a := start(t, "a", c, nil)
		a.took(t)
		for _, away := range []time.Duration{3 * time.Second, 15 * time.Second, 10 * time.Minute} {
			cut(true)
			pass(away)
			if a.passes() != (away < deadline) {
				t.Errorf("away for %v: passes: %t", away, a.passes())
			}
			blocked := make(chan error, 1)
			go func() { blocked <- a.Fence().Pass(t.Context()) }()
			cut(false)
			began := time.Now()
			if err := <-blocked; err != nil || time.Since(began) > retry {
				t.Errorf("away for %v: Pass after %v: %v", away, time.Since(began), err)
			}
			pass(5 * time.Second)
		}
		if st := a.Status(); st.Epoch != 2 || !st.Leading || a.Ready() != nil ||
			strings.Count(a.log.String(), "publishing pauses") != 2 ||
			strings.Count(a.log.String(), "publishing resumes") != 2 {
			t.Errorf("%+v\n%s", st, a.log)
		}
		end(t, a)
	})
}

// If the standby itself is disconnected, its wait must not become shorter, and it must not give up.
func TestStandbyWithoutAnAPIServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		c, cut := wall(s)
		b := start(t, "b", c, nil)
		pass(5 * time.Second)
		cut(true)
		pass(time.Hour)
		if b.Ready() != nil || b.passes() {
			t.Errorf("%v, passes: %t", b.Ready(), b.passes())
		}
		cut(false)
		for range 1000 {
			pass(10 * time.Millisecond)
			if b.passes() {
				t.Fatal("both pass")
			}
		}
		end(t, a, b)
	})
}

func TestDeletedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		end(t, a)
		b := start(t, "b", &leader.Client{Server: s}, nil)
		b.took(t)
		c := start(t, "c", &leader.Client{Server: s}, nil)
		pass(5 * time.Second)

		// The holder recreates the Lease unchanged, and nobody else leads.
		s.Delete()
		for range 200 {
			pass(50 * time.Millisecond)
			if !b.passes() || c.passes() {
				t.Fatalf("passes: %t, the standby's: %t", b.passes(), c.passes())
			}
		}
		if spec := s.Spec(); spec == nil || spec.HolderIdentity != "b" || spec.LeaseTransitions != 2 {
			t.Errorf("%+v", spec)
		}

		// The Lease and its holder are both gone.
		end(t, b)
		s.Delete()
		if term, took := c.took(t); took < duration || took > duration+2*retry || term.Epoch != 4 {
			t.Errorf("epoch %d after %v", term.Epoch, took)
		}
		end(t, c)
	})
}

// If the Lease was deleted while its holder was disconnected, another agent may have led in
// between.
func TestDeletedUnseen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		c, cut := wall(s)
		a := start(t, "a", c, nil)
		a.took(t)
		cut(true)
		s.Delete()
		pass(deadline + retry)
		cut(false)
		if err := <-a.end; !errors.Is(err, leader.ErrLost) || !strings.Contains(err.Error(), "deleted") {
			t.Error(err)
		}
	})
}

func TestEditedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		b := start(t, "b", &leader.Client{Server: s}, nil)
		pass(5 * time.Second)
		for name, edit := range map[string]func(*leader.Spec){
			"a label":           nil,
			"the holder's name": func(s *leader.Spec) { s.HolderIdentity = "" },
		} {
			s.Edit(edit)
			for range 100 {
				pass(50 * time.Millisecond)
				if !a.passes() || b.passes() {
					t.Fatalf("%s: passes: %t, the standby's: %t", name, a.passes(), b.passes())
				}
			}
		}
		s.Edit(func(s *leader.Spec) { s.HolderIdentity = "somebody" })
		if err := <-a.end; !errors.Is(err, leader.ErrLost) {
			t.Error(err)
		}
		end(t, b)
	})
}

// A lost answer must not count as a write by another agent.
func TestLostAnswers(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		t.Run(verb, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := new(leader.Server)
				if verb == "update" {
					first := start(t, "first", &leader.Client{Server: s}, nil)
					first.took(t)
					end(t, first)
				}
				var lost atomic.Int64
				c := &leader.Client{Server: s, After: func(_ context.Context, v string) error {
					if v == verb && lost.Load() < 2 {
						lost.Add(1)
						return errAway
					}
					return nil
				}}
				a := start(t, "a", c, nil)
				term, took := a.took(t)
				want := map[string]uint64{"create": 2, "update": 3}[verb]
				if term.Epoch != want || took > duration+3*retry || lost.Load() == 0 {
					t.Errorf("epoch %d after %v, %d lost", term.Epoch, took, lost.Load())
				}
				lost.Store(0)
				pass(10 * time.Second)
				if !a.passes() {
					t.Error("it does not pass")
				}
				end(t, a)
			})
		})
	}
}

// The validity of a renewal counts from when it was sent: a late answer shortens it.
func TestLateAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		var late atomic.Int64 // nanoseconds
		c := &leader.Client{Server: s, After: func(ctx context.Context, _ string) error {
			return waitFor(ctx, time.Duration(late.Load()))
		}}
		a := start(t, "a", c, nil)
		a.took(t)
		late.Store(int64(1900 * time.Millisecond))
		for range 3000 {
			pass(10 * time.Millisecond)
			if !a.passes() {
				t.Fatalf("it does not pass\n%s", a.log)
			}
		}
		late.Store(int64(time.Hour)) // no answer at all, although every request is carried out
		began := time.Now()
		for a.passes() {
			pass(10 * time.Millisecond)
		}
		if d := time.Since(began); d > deadline {
			t.Errorf("it passes for %v without an answer", d)
		}
		late.Store(0)
		pass(3 * time.Second)
		if !a.passes() || a.Status().Epoch != 2 {
			t.Errorf("passes: %t, %+v", a.passes(), a.Status())
		}
		end(t, a)
	})
}
