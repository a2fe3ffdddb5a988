package terminal_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// parse parses a line, for slogtest.
func parse(t *testing.T, line string) map[string]any {
	t.Helper()
	m := map[string]any{slog.LevelKey: slog.LevelInfo}
	words := strings.Fields(line)
	if _, err := time.Parse(time.TimeOnly, words[0]); err == nil {
		m[slog.TimeKey], words = words[0], words[1:]
	}
	m[slog.MessageKey] = words[0]
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			t.Fatalf("%q is not key=value in %q", w, line)
		}
		into, path := m, strings.Split(key, ".")
		for _, group := range path[:len(path)-1] {
			if into[group] == nil {
				into[group] = map[string]any{}
			}
			into = into[group].(map[string]any)
		}
		into[path[len(path)-1]] = value
	}
	return m
}

func TestHandlerKeepsToTheContractOfSlog(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return terminal.NewHandler(&terminal.Output{Writer: &buf}, slog.LevelInfo)
	}, func(t *testing.T) map[string]any { return parse(t, strings.TrimSpace(buf.String())) })
}

func TestHandlerLines(t *testing.T) {
	at := time.Date(2026, 11, 20, 15, 4, 5, 0, time.Local)
	for _, test := range []struct {
		name  string
		level slog.Level
		msg   string
		attrs []any
		want  string
	}{
		{"info has no mark", slog.LevelInfo, "kubecdc starts", []any{
			"version", "v1.2.3",
		}, "15:04:05 kubecdc starts version=v1.2.3"},
		{"other levels have", slog.LevelWarn, "slow", nil, "15:04:05 WARN slow"},
		{"between levels", slog.LevelError + 2, "worse", nil, "15:04:05 ERROR+2 worse"},
		{"debug", slog.LevelDebug, "snapshot started", []any{"rv", 12345}, "15:04:05 DEBUG snapshot started rv=12345"},
		{
			"an error comes last", slog.LevelWarn, "retrying",
			[]any{"err", errors.New(`pods is forbidden: User "x"`), "retry_in", 2 * time.Second},
			`15:04:05 WARN retrying retry_in=2s err: pods is forbidden: User "x"`,
		},
		{
			"quoted where needed", slog.LevelInfo, "m",
			[]any{"empty", "", "two", "a b", "eq", "a=b", "quote", `a"b`, "word", "a/b,c:d", "odd key", 1},
			`15:04:05 m empty="" two="a b" eq="a=b" quote="a\"b" word=a/b,c:d "odd key"=1`,
		},
		{
			"control characters", slog.LevelInfo, "a\x1b[2Jb\nc\x00\x9b\u202ed",
			[]any{"k", "\x1b]0;x\a", "bad", "\xff", "err", "x\r\ny\xff"},
			`15:04:05 a\x1b[2Jb\nc\x00\x9b\u202ed k="\x1b]0;x\a" bad="\xff" err: x\r\ny\xff`,
		},
		{"printable", slog.LevelInfo, "größe 大きい", []any{"k", "é→✓"}, "15:04:05 größe 大きい k=é→✓"},
		{
			"groups", slog.LevelInfo, "m",
			[]any{
				slog.Group("a", slog.Group("b", "c", 1), "err", "inner"), slog.Group("", "inline", 2),
				slog.Group("none"),
			},
			"15:04:05 m a.b.c=1 a.err=inner inline=2",
		},
		{
			"durations to three digits", slog.LevelInfo, "m",
			[]any{
				"a", 3217412345 * time.Nanosecond, "b", 123456 * time.Nanosecond, "c", 61*time.Minute + 1*time.Second,
				"d", time.Duration(0),
			},
			"15:04:05 m a=3.22s b=123µs c=1h1m0s d=0s",
		},
		{"times are local", slog.LevelInfo, "m", []any{
			"since", at.UTC(),
		}, "15:04:05 m since=" + at.Format(time.RFC3339)},
		{"structs", slog.LevelInfo, "m", []any{"v", struct{ A, B int }{1, 2}, "nil", nil, "list", []string{
			"a",
		}}, `15:04:05 m v="{A:1 B:2}" nil=<nil> list=[a]`},
		{"a nil error in an interface", slog.LevelInfo, "m", []any{"err", (*net)(nil)}, "15:04:05 m err: <nil>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var buf bytes.Buffer
			h := terminal.NewHandler(&terminal.Output{Writer: &buf}, slog.LevelDebug)
			r := slog.NewRecord(at, test.level, test.msg, 0)
			r.Add(test.attrs...)
			if err := h.Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want+"\n", buf.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// At a terminal, attributes are not broken at the edge. An attribute without room begins a line
// below the message.
func TestHandlerBreaksLinesBetweenAttributes(t *testing.T) {
	var buf bytes.Buffer
	at := time.Date(2026, 11, 20, 15, 4, 5, 0, time.Local)
	h := terminal.NewHandler(&terminal.Output{Writer: &buf, Interactive: true, Width: 40}, slog.LevelInfo)
	for _, attrs := range [][]any{
		{"exact", strings.Repeat("x", 14)},
		{"a", "größe", "wide", strings.Repeat("x", 17)},
		{"a", "größe", "b", strings.Repeat("x", 11)},             // one column too many
		{"endless", strings.Repeat("x", 50), "b", "c d", "e", 1}, // longer than a line
		{"err", "it is of no use to try", "n", 1},
	} {
		r := slog.NewRecord(at, slog.LevelWarn, "slow", 0)
		r.Add(attrs...)
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	want := `15:04:05 WARN slow exact=xxxxxxxxxxxxxx
15:04:05 WARN slow a=größe
         wide=xxxxxxxxxxxxxxxxx
15:04:05 WARN slow a=größe
         b=xxxxxxxxxxx
15:04:05 WARN slow
         endless=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
         b="c d" e=1
15:04:05 WARN slow n=1
         err: it is of no use to try
`
	if diff := cmp.Diff(want, buf.String()); diff != "" {
		t.Error(diff)
	}
}

// net is an error whose method panics for a nil pointer.
type net struct{ text string }

func (n *net) Error() string { return n.text }

func TestHandlerWithAttrsAndGroups(t *testing.T) {
	var buf bytes.Buffer
	base := slog.New(terminal.NewHandler(&terminal.Output{Writer: &buf}, slog.LevelInfo)).With("a", 1, "err", "early")
	one, two := base.With("b", 2), base.WithGroup("g").With("c", 3)
	one.Info("one", "d", 4)
	two.Info("two", "d", 4, "err", "in a group")
	base.Info("three")
	base.Debug("not enabled")
	var got []string
	for l := range strings.Lines(buf.String()) {
		_, l, _ = strings.Cut(strings.TrimSpace(l), " ")
		got = append(got, l)
	}
	want := []string{
		"one a=1 b=2 d=4 err: early", `two a=1 g.c=3 g.d=4 g.err="in a group" err: early`, "three a=1 err: early",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Colours mark the level and the cause of warnings and errors. All other text is plain.
func TestHandlerColors(t *testing.T) {
	s, out := newScreen(t, 80, 5)
	log := slog.New(terminal.NewHandler(out, slog.LevelInfo))
	log.Info("fine", "k", "v")
	log.Warn("hm", "err", "cause-w")
	log.Error("bad", "err", "cause-e")
	for text, want := range map[string]vt10x.Color{
		"fine":    vt10x.DefaultFG,
		"k=v":     vt10x.DefaultFG,
		"WARN":    vt10x.Yellow,
		"hm":      vt10x.DefaultFG,
		"cause-w": vt10x.Yellow,
		"ERROR":   vt10x.Red,
		"cause-e": vt10x.Red,
	} {
		if got := s.color(text); got != want {
			t.Errorf("%q has colour %d, want %d", text, got, want)
		}
	}
}

// A record is one write, and lines of many goroutines stay whole.
func TestHandlerIsSafeForConcurrentUse(t *testing.T) {
	w := &lineWriter{seen: map[string]int{}}
	log := slog.New(terminal.NewHandler(&terminal.Output{Writer: w}, slog.LevelInfo))
	const writers, each = 8, 200
	var wg sync.WaitGroup
	for g := range writers {
		wg.Go(func() {
			log := log.With("g", g)
			for i := range each {
				log.Info("message", "i", i)
			}
		})
	}
	wg.Wait()
	for g := range writers {
		for i := range each {
			if n := w.seen[fmt.Sprintf("message g=%d i=%d", g, i)]; n != 1 {
				t.Errorf("line %d of %d was written %d times", i, g, n)
			}
		}
	}
	if len(w.seen) != writers*each {
		t.Errorf("%d different lines, want %d", len(w.seen), writers*each)
	}
}

// lineWriter counts writes by their text after the time.
type lineWriter struct{ seen map[string]int }

func (w *lineWriter) Write(p []byte) (int, error) {
	_, line, _ := strings.Cut(strings.TrimSuffix(string(p), "\n"), " ")
	w.seen[line]++
	return len(p), nil
}

// Log lines of klog (client-go) use the same handler.
func TestHandlerOfKlog(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(terminal.NewHandler(&terminal.Output{Writer: &buf}, slog.LevelInfo))
	// Do the same as klog.SetSlogLogger, without setting it for the process.
	ctx := klog.NewContext(t.Context(), logr.FromSlogHandler(log.Handler()))
	klog.FromContext(ctx).WithName("reflector").
		Error(fmt.Errorf("boom%c", 10), "Failed to watch", "type", "v1.Pod", "n", 3)
	_, got, _ := strings.Cut(buf.String(), " ")
	if want := "ERROR Failed to watch logger=reflector type=v1.Pod n=3 err: boom\\n\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
