package terminal_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hinshun/vt10x"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// status is the source that a Display polls.
type status struct {
	mu    sync.Mutex
	items []terminal.Item
	done  bool
	polls int
}

func (s *status) set(done bool, items ...terminal.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items, s.done = items, done
}

func (s *status) poll() ([]terminal.Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls++
	return s.items, s.done
}

// run runs d until it ends or stop is called. stop waits for its end.
func run(t *testing.T, d *terminal.Display) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// pass waits for d, and for everything that happens within it.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// logger logs to out without the time, which is irrelevant to the tests.
func logger(out *terminal.Output) *slog.Logger {
	return slog.New(timeless{terminal.NewHandler(out, slog.LevelInfo)})
}

type timeless struct{ slog.Handler }

func (t timeless) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.Time{}
	return t.Handler.Handle(ctx, r)
}

// busy returns the items of a snapshot that is half done.
func busy() []terminal.Item {
	return []terminal.Item{
		{Name: "configmaps", State: terminal.Sending, Objects: 3100, Sent: 775},
		{Name: "deployments.apps", State: terminal.Done, Objects: 48, Sent: 48},
		{Name: "events", State: terminal.Reading, Objects: 12000},
		{Name: "nodes", Problem: "forbidden"},
		{Name: "pods", State: terminal.Reading, Objects: 1500, Expected: 2000},
		{Name: "secrets", Problem: "forbidden"},
		{Name: "services", State: terminal.Waiting},
		{Name: "widgets.example.com", Problem: "not served"},
	}
}

// Check a screen of 80×24 during a snapshot, from the first line to the last.
func TestDisplayOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		log := logger(out)
		log.Info("kubecdc starts")
		st := &status{}
		run(t, terminal.NewDisplay(out, st.poll))
		pass(10 * time.Millisecond)
		s.shows("kubecdc starts")

		pass(100 * time.Millisecond)
		s.shows("kubecdc starts", "", "⠙ looking for resources")

		st.set(false, busy()...)
		pass(100 * time.Millisecond)
		s.shows("kubecdc starts", "",
			"⠹ 1/8 resources · 16,648 objects · 823 sent",
			"  events                                           12,000 read",
			"  pods        ━━━━━━━━━━━━━━━━━━━━━━────────  1,500/2,000 read",
			"  configmaps  ━━━━━━━───────────────────────    775/3,100 sent",
			"! forbidden (2): nodes, secrets",
			"! not served (1): widgets.example.com")
		if got := s.color("not served"); got != vt10x.Yellow {
			t.Errorf("a problem has colour %d", got)
		}

		log.Warn("slow bus", "err", "timeout")
		log.Info("second line")
		s.shows("kubecdc starts", "WARN slow bus err: timeout", "second line", "",
			"⠹ 1/8 resources · 16,648 objects · 823 sent",
			"  events                                           12,000 read",
			"  pods        ━━━━━━━━━━━━━━━━━━━━━━────────  1,500/2,000 read",
			"  configmaps  ━━━━━━━───────────────────────    775/3,100 sent",
			"! forbidden (2): nodes, secrets",
			"! not served (1): widgets.example.com")

		all := busy()
		for i := range all {
			if all[i].Problem == "" {
				all[i].State, all[i].Sent = terminal.Done, all[i].Objects
			}
		}
		st.set(false, all...)
		pass(2 * time.Second)
		s.shows("kubecdc starts", "WARN slow bus err: timeout", "second line", "",
			"⠹ 5/8 resources · 16,648 objects · 16,648 sent · 2s",
			"! forbidden (2): nodes, secrets",
			"! not served (1): widgets.example.com")

		st.set(true, all...)
		pass(100 * time.Millisecond)
		log.Info("waiting for changes")
		s.shows("kubecdc starts", "WARN slow bus err: timeout", "second line",
			"         events 12,000 · configmaps 3,100 · pods 1,500 · deployments.apps 48",
			"waiting for changes")
	})
}

func TestDisplayIsRemovedWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		st := &status{}
		st.set(false, busy()...)
		stop := run(t, terminal.NewDisplay(out, st.poll))
		pass(time.Second)
		if !strings.Contains(s.text(), "1/8 resources") {
			t.Fatal(s.text())
		}
		stop()
		s.shows("")
		logger(out).Info("draining")
		s.shows("draining")
	})
}

func TestDisplayIsRemovedWhenItsStatusPanics(t *testing.T) {
	s, out := newScreen(t, 80, 24)
	polls := 0
	d := terminal.NewDisplay(out, func() ([]terminal.Item, bool) {
		polls++
		if polls == 2 {
			panic("in the status")
		}
		return busy(), false
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		d.Run(t.Context())
	}()
	s.shows("")
}

// If the server reports no list lengths, there are no bars, and no room for them.
func TestDisplayWithoutExpectations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		st := &status{}
		st.set(false, terminal.Item{Name: "pods", State: terminal.Reading, Objects: 500}, terminal.Item{
			Name:    "events",
			State:   terminal.Reading,
			Objects: 12000,
		})
		run(t, terminal.NewDisplay(out, st.poll))
		pass(150 * time.Millisecond)
		s.shows("", "⠙ 0/2 resources · 12,500 objects · 0 sent", "  pods       500 read", "  events  12,000 read")
	})
}

// On 200 columns, the bars do not grow with the screen. On 40 columns or fewer, no line wraps.
func TestDisplayFitsTheWidth(t *testing.T) {
	for columns, want := range map[int][]string{
		200: {
			"", "⠙ 1/8 resources · 16,648 objects · 823 sent",
			"  events                                           12,000 read",
			"  pods        ━━━━━━━━━━━━━━━━━━━━━━────────  1,500/2,000 read",
			"  configmaps  ━━━━━━━───────────────────────    775/3,100 sent",
			"! forbidden (2): nodes, secrets",
			"! not served (1): widgets.example.com",
		},
		40: {
			"", "⠙ 1/8 resources · 16,648 objects · 823…",
			"  events           12,000 read",
			"  pods        1,500/2,000 read",
			"  configmaps    775/3,100 sent",
			"! forbidden (2): nodes, secrets",
			"! not served (1): widgets.example.com",
		},
		20: {
			"", "⠙ 1/8 resources · …",
			"  events        12…",
			"  pods     1,500/2…",
			"  config…    775/3…",
			"! forbidden (2): n…",
			"! not served (1): …",
		},
	} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, out := newScreen(t, columns, 24)
				st := &status{}
				st.set(false, busy()...)
				run(t, terminal.NewDisplay(out, st.poll))
				pass(150 * time.Millisecond)
				s.shows(want...)
			})
		})
	}
}

func TestDisplayNeverWraps(t *testing.T) {
	for columns := 2; columns <= 130; columns++ {
		synctest.Test(t, func(t *testing.T) {
			s, out := newScreen(t, columns, 24)
			st := &status{}
			st.set(false, busy()...)
			run(t, terminal.NewDisplay(out, st.poll))
			pass(150 * time.Millisecond)
			lines := strings.Split(s.text(), "\n")
			if len(lines) != 7 || !strings.HasPrefix(lines[6], "!"[:min(1, columns-2)]) {
				t.Errorf("%d columns:\n%s", columns, s.text())
			}
			st.set(true, busy()...)
			pass(100 * time.Millisecond)
			if lines := strings.Split(s.text(), "\n"); len(lines) != 1 || columns > 12 && lines[0] == "" {
				t.Errorf("%d columns, in the end:\n%s", columns, s.text())
			}
		})
	}
}

// A screen of any height shows the region once, without remains of others. The summary has
// priority.
func TestDisplayFitsTheHeight(t *testing.T) {
	for rows := 1; rows <= 12; rows++ {
		synctest.Test(t, func(t *testing.T) {
			s, out := newScreen(t, 60, rows)
			log := logger(out)
			st := &status{}
			st.set(false, busy()...)
			run(t, terminal.NewDisplay(out, st.poll))
			for i := range 30 {
				log.Info("line", "n", i)
				pass(50 * time.Millisecond)
			}
			want := 0
			if rows > 2 {
				want = 1
				if !strings.Contains(s.text(), "line n=29") {
					t.Errorf("%d rows: the last line is not in sight:\n%s", rows, s.text())
				}
			}
			for _, part := range []string{"resources ·", "line n=29"} {
				if got := strings.Count(s.text(), part); got < want || got > 1 {
					t.Errorf("%d rows: %q is %d times on the screen:\n%s", rows, part, got, s.text())
				}
			}
			if rows >= 5 && (!strings.Contains(s.text(), "forbidden") || !strings.Contains(s.text(), "not served")) {
				t.Errorf("%d rows: a problem is not in sight:\n%s", rows, s.text())
			}
		})
	}
}

// Each redraw uses the current size of the terminal.
func TestDisplayOnATerminalThatIsResized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 120, 24)
		st := &status{}
		st.set(false, busy()...)
		run(t, terminal.NewDisplay(out, st.poll))
		pass(150 * time.Millisecond)
		for _, size := range [][2]int{{30, 24}, {200, 24}, {60, 6}, {80, 24}} {
			s.resize(size[0], size[1])
			pass(100 * time.Millisecond)
			if got := strings.Count(s.text(), "resources"); got != 1 {
				t.Errorf("%v: the summary is %d times on the screen:\n%s", size, got, s.text())
			}
		}
		logger(out).Info("after")
		s.shows("after", "", "⠴ 1/8 resources · 16,648 objects · 823 sent",
			"  events                                           12,000 read",
			"  pods        ━━━━━━━━━━━━━━━━━━━━━━────────  1,500/2,000 read",
			"  configmaps  ━━━━━━━───────────────────────    775/3,100 sent",
			"! forbidden (2): nodes, secrets",
			"! not served (1): widgets.example.com")
	})
}

// If there are many resources, the region shows the eight that are being read and three kinds of
// problems, with escaped names.
func TestDisplayOfManyResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 40)
		var items []terminal.Item
		for i := range 300 {
			it := terminal.Item{
				Name:     fmt.Sprintf("resource-%03d.with-a-rather-long-name.example.com", i),
				Objects:  10,
				Expected: 100,
			}
			switch {
			case i < 20:
				it.State = terminal.Sending
			case i < 30:
				it.State = terminal.Reading
			case i < 80:
				it.Problem = fmt.Sprintf("problem\x1b[2J %d", i%5)
			}
			items = append(items, it)
		}
		st := &status{}
		st.set(false, items...)
		run(t, terminal.NewDisplay(out, st.poll))
		pass(150 * time.Millisecond)
		want := []string{"", "⠙ 0/300 resources · 3,000 objects · 0 sent"}
		for i := range 8 {
			want = append(want,
				fmt.Sprintf("  resource-%03d.with-a-rather-lon…  ━━━───────────────────────────  10/100 read", 20+i))
		}
		for i := range 2 {
			want = append(want,
				fmt.Sprintf(`! problem\x1b[2J %d (10): resource-%03d.with-a-rather-long-name.example.com, res…`, i,
					30+i))
		}
		s.shows(append(want, "! other problems (30): resource-032.with-a-rather-long-name.example.com, resou…")...)

		st.set(true, items...)
		pass(100 * time.Millisecond)
		s.shows("         resource-000.with-a-rather-long-name.example.com 10 · 299 more")
	})
}

// The terminal is redrawn at most ten times a second, whatever happens.
func TestDisplayDoesNotBusyTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		st := &status{}
		st.set(false, busy()...)
		run(t, terminal.NewDisplay(out, st.poll))
		pass(10*time.Second + time.Millisecond)
		if s.count() != 100 || st.polls != 100 {
			t.Errorf("%d writes and %d polls in ten seconds, want 100 of each", s.count(), st.polls)
		}
	})
}

// With log lines of many goroutines and redraws, every line is there once and whole, and the region
// once.
func TestDisplayBesideManyLoggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, each = 5, 20
		s, out := newScreen(t, 80, writers*each+20)
		st := &status{}
		st.set(false, busy()...)
		run(t, terminal.NewDisplay(out, st.poll))
		var wg sync.WaitGroup
		for g := range writers {
			wg.Go(func() {
				log := logger(out)
				for i := range each {
					log.Info("message", "g", g, "i", i)
					<-time.After(time.Duration(g+1) * 7 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		lines := strings.Split(s.text(), "\n")
		seen := map[string]int{}
		for _, l := range lines {
			seen[l]++
		}
		for g := range writers {
			for i := range each {
				if l := fmt.Sprintf("message g=%d i=%d", g, i); seen[l] != 1 {
					t.Errorf("%q is %d times on the screen", l, seen[l])
				}
			}
		}
		if want := writers*each + 7; len(lines) != want { // the lines, a blank one, and the region of six
			t.Errorf("%d lines on the screen, want %d:\n%s", len(lines), want, s.text())
		}
	})
}

// The next redraw erases text that other programs leave at the cursor, such as the ^C of a user.
// Whole lines stay.
func TestDisplayMendsWhatOthersWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		st := &status{}
		st.set(false, terminal.Item{Name: "pods", State: terminal.Waiting})
		run(t, terminal.NewDisplay(out, st.poll))
		pass(150 * time.Millisecond)
		_, _ = s.Write([]byte("^C"))
		s.shows("^C", "⠙ 0/1 resources · 0 objects · 0 sent")
		pass(100 * time.Millisecond)
		s.shows("", "⠹ 0/1 resources · 0 objects · 0 sent")
		_, _ = s.Write([]byte("a line of another program\n"))
		pass(100 * time.Millisecond)
		s.shows("a line of another program", "", "⠸ 0/1 resources · 0 objects · 0 sent")
	})
}

func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		var mu sync.Mutex
		left := 1234
		run(t, terminal.NewCounter(out, func() (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprintf("draining: %d events left", left), left == 0
		}))
		pass(150 * time.Millisecond)
		s.shows("", "⠙ draining: 1234 events left")
		pass(3 * time.Second)
		s.shows("", "⠙ draining: 1234 events left · 3s")
		mu.Lock()
		left = 0
		mu.Unlock()
		pass(100 * time.Millisecond)
		s.shows("")
	})
}

// A task that is done at the first poll is never shown.
func TestWhatIsOverAtOnceDoesNotFlicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := newScreen(t, 80, 24)
		stop := run(t, terminal.NewCounter(out, func() (string, bool) { return "draining", true }))
		pass(150 * time.Millisecond)
		stop()
		if s.count() != 0 {
			t.Errorf("%d writes", s.count())
		}
	})
}

func TestDisplayOfAnOutputThatIsNotInteractive(t *testing.T) {
	var buf bytes.Buffer
	polls := 0
	terminal.NewDisplay(&terminal.Output{Writer: &buf}, func() ([]terminal.Item, bool) {
		polls++
		return busy(), false
	}).Run(t.Context()) // returns at once
	if buf.Len() > 0 || polls > 0 {
		t.Errorf("%d polls, drawn: %q", polls, &buf)
	}
}
