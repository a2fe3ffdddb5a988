package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
)

// screen is the person's terminal. The demo's messages and tail's output pass through it line by
// line, so that they never mix within a line. Safe for concurrent use.
type screen struct {
	mu sync.Mutex
	w  io.Writer

	redraws bool // a terminal: a line can be rewritten
	drawn   bool // the cursor is in such a line
	colour  bool
	width   int // columns, 0: not a terminal
}

func newScreen(w io.Writer, getenv func(string) string) *screen {
	s := &screen{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.redraws = getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			s.width = width
		}
	}
	s.colour = (s.redraws || getenv("CLICOLOR_FORCE") != "" && getenv("CLICOLOR_FORCE") != "0") &&
		getenv("NO_COLOR") == ""
	return s
}

// environment returns variables that describe the terminal to a child that writes into a pipe.
func (s *screen) environment() []string {
	var env []string
	if s.colour {
		env = append(env, "CLICOLOR_FORCE=1")
	}
	if s.width > 0 {
		env = append(env, fmt.Sprintf("COLUMNS=%d", s.width))
	}
	return env
}

// SGR parameters (ECMA-48, 8.3.117).
const (
	bold = "1"
	dim  = "2"
)

func (s *screen) paint(sgr, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

func (s *screen) printf(format string, args ...any) { _, _ = fmt.Fprintf(s, format, args...) }

// Write writes whole lines and replaces the redrawn line.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		s.drawn = false
		if _, err := io.WriteString(s.w, "\r\x1b[K"); err != nil {
			return 0, err
		}
	}
	return s.w.Write(lines)
}

// redraw writes a line that the next one replaces. It must not be wider than the screen. If lines
// cannot be replaced, it stays.
func (s *screen) redraw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redraws {
		fmt.Fprintf(s.w, "\r%s\x1b[K", line)
		s.drawn = true
		return
	}
	fmt.Fprintln(s.w, line)
}

// caption prints the next step, as the command that a person would type.
func (s *screen) caption(text string) { s.printf("\n%s\n", s.paint(dim, "# "+text)) }

// step runs do, which takes more than a moment. It shows what and the elapsed time while do runs,
// and the total time at the end.
func (s *screen) step(what string, do func() error) error {
	begin := time.Now()
	elapsed := func() string { return s.paint(dim, fmt.Sprintf("%.1f s", time.Since(begin).Seconds())) }
	drawn := []rune("  " + what + " …")
	if s.redraws && s.width > 0 { // with room for the time
		drawn = drawn[:min(len(drawn), max(0, s.width-10))]
	}
	s.redraw(string(drawn))
	var ticker errgroup.Group
	stop := make(chan struct{})
	ticker.Go(func() error {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for s.redraws {
			select {
			case <-tick.C:
				s.redraw(string(drawn) + " " + elapsed())
			case <-stop:
				return nil
			}
		}
		return nil
	})
	err := do()
	close(stop)
	_ = ticker.Wait() // it does not fail
	if err != nil {
		what += ": given up after"
	}
	s.printf("  %s  %s\n", what, elapsed())
	return err
}

// show writes the output of r line by line until it ends. It calls seen with each line as it is on
// the screen, without its colours.
func (s *screen) show(r io.Reader, seen func(line string)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.printf("%s", line)
			seen(plain(line))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what tail shows: %w", err)
		}
	}
}

// plain returns line without its SGR sequences and its line end.
func plain(line string) string {
	line = strings.TrimRight(line, "\n")
	var b strings.Builder
	for {
		text, rest, ok := strings.Cut(line, "\x1b[")
		b.WriteString(text)
		if !ok {
			return b.String()
		}
		_, line, ok = strings.Cut(rest, "m")
		if !ok {
			return b.String()
		}
	}
}
