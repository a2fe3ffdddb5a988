package leader_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/leader"
)

// The renewal in an answer may have happened while the request was in flight: the wait begins after
// the answer.
func TestStandbyWaitsFromTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		end(t, a)
		var renewed time.Time
		slow := func(_ context.Context, verb string) error {
			if verb == "get" && renewed.IsZero() {
				pass(1900 * time.Millisecond)
				renewed = time.Now() // by a leader that is killed then
				s.Edit(func(l *leader.Spec) { l.RenewTime.Time = renewed })
			}
			return nil
		}
		b := start(t, "b", &leader.Client{Server: s, Before: slow}, nil)
		b.took(t)
		if waited := time.Since(renewed); waited < duration || waited > duration+retry {
			t.Errorf("it leads %v after the renewal that it has seen, want %v", waited, duration)
		}
		end(t, b)
	})
}

// lead makes another agent lead for a moment and release the Lease.
func lead(t *testing.T, s *leader.Server, name string) {
	t.Helper()
	b := start(t, name, &leader.Client{Server: s}, nil)
	b.took(t)
	end(t, b)
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A leader that was disconnected finds the Lease free. Whether it may continue depends on who has
// led meanwhile.
func TestReturnToAFreeLease(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, s *leader.Server)
		want      string // of the error; "": it continues
	}{
		"nobody has led": {func(_ *testing.T, s *leader.Server) {
			s.Edit(func(l *leader.Spec) {
				l.HolderIdentity = ""
			})
		}, ""},
		"another one has led": {func(t *testing.T, s *leader.Server) {
			lead(t, s, "b")
		}, "another agent has led, and released the Lease"},
		"it was deleted as well": {func(t *testing.T, s *leader.Server) {
			s.Delete()
			lead(t, s, "b")
		}, "deleted, and created again"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := new(leader.Server)
				c, cut := wall(s)
				a := start(t, "a", c, nil)
				a.took(t)
				cut(true)
				pass(deadline + retry)
				test.meanwhile(t, s)
				if test.want == "" {
					cut(false)
					if err := a.Fence().Pass(t.Context()); err != nil || a.Status().Epoch != 2 {
						t.Errorf("%v, %+v", err, a.Status())
					}
					end(t, a)
					return
				}
				// Except for one difference, the Lease is as a left it.
				s.Edit(func(l *leader.Spec) {
					if strings.Contains(test.want, "deleted") && l.LeaseTransitions != 1 {
						t.Errorf("%+v: the transitions tell already", l)
					}
				})
				cut(false)
				select {
				case err := <-a.end:
					if !errors.Is(err, leader.ErrLost) || !strings.Contains(err.Error(), test.want) {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("it goes on, passes: %t\n%s", a.passes(), a.log)
				}
			})
		})
	}
}

// If a standby that has never seen the Lease recreates it with other numbers, the holder, whose
// fence is open, continues with its own.
func TestLeaseIsPlacedAnewUnderItsHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		lead(t, s, "first")
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		pass(retry / 2) // its next renewal comes only after this
		s.Delete()
		b := start(t, "b", &leader.Client{Server: s}, nil)
		for range 200 {
			pass(50 * time.Millisecond)
			if !a.passes() || b.passes() {
				t.Fatalf("passes: %t, the standby's: %t\n%s", a.passes(), b.passes(), a.log)
			}
		}
		if spec := s.Spec(); spec.HolderIdentity != "a" || spec.LeaseTransitions != 2 || a.Status().Epoch != 3 {
			t.Errorf("%+v, %+v", spec, a.Status())
		}
		end(t, a, b)
	})
}

// A late request to recreate the Lease may find that it was deleted once more, under another
// leader.
func TestLateRestore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		var stopped atomic.Bool
		hold := make(chan struct{})
		late := func(_ context.Context, verb string) error {
			if verb == "create" && stopped.Load() {
				<-hold
			}
			return nil
		}
		a := start(t, "a", &leader.Client{Server: s, Before: late}, nil)
		a.took(t)
		stopped.Store(true)
		s.Delete()
		pass(2 * retry) // it has detected the deletion, and its request is in flight
		b := start(t, "b", &leader.Client{Server: s}, nil)
		b.took(t)
		s.Delete()
		close(hold)
		for range 1000 {
			pass(10 * time.Millisecond)
			if a.passes() {
				t.Fatalf("it passes, b: %t\n%v", b.passes(), s.Transcript())
			}
		}
		select {
		case err := <-a.end:
			if !errors.Is(err, leader.ErrLost) {
				t.Error(err)
			}
		default:
			t.Error("it goes on")
		}
		end(t, b)
	})
}

// The shortest duration that a Lease can hold is that of a released one. No other Lease may look
// released.
func TestShortDuration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		brief := leader.Options{
			LeaseDuration: time.Second,
			RenewDeadline: 800 * time.Millisecond,
			RetryPeriod:   400 * time.Millisecond,
		}
		a := startWith(t, "a", brief, &leader.Client{Server: s}, nil)
		a.took(t)
		pass(brief.RetryPeriod / 2)
		b := startWith(t, "b", brief, &leader.Client{Server: s}, nil) // it reads halfway between two renewals
		pass(25*brief.RetryPeriod + brief.RetryPeriod/2 + 10*time.Millisecond)
		for name, change := range map[string]func(){
			"it is deleted":                s.Delete,
			"the holder's name is removed": func() { s.Edit(func(l *leader.Spec) { l.HolderIdentity = "" }) },
		} {
			change()
			for range 1000 {
				pass(5 * time.Millisecond)
				if a.passes() && b.passes() {
					t.Fatalf("%s: both pass\n%s", name, strings.Join(s.Transcript(), "\n"))
				}
			}
		}
		end(t, a, b)
	})
}

// An agent that has lost the Lease is about to exit, and is not a standby.
func TestLostLeaderIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(leader.Server)
		a := start(t, "a", &leader.Client{Server: s}, nil)
		a.took(t)
		s.Edit(func(l *leader.Spec) { l.HolderIdentity = "b" })
		if err := <-a.end; !errors.Is(err, leader.ErrLost) {
			t.Fatal(err)
		}
		if err, st := a.Ready(), a.Status(); !errors.Is(err, leader.ErrLost) || !errors.Is(st.Over, leader.ErrLost) ||
			st.Leading || st.Paused ||
			st.String() != "lost the Lease, exiting" {
			t.Errorf("%v, %+v, %s", err, st, st.String())
		}
		if err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
