package clients_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/kubecdc/kubecdc/test/wait"
)

// screen is what a terminal shows. It knows the control sequences that full-screen programs send to
// an xterm: text, movements of the cursor, and deletions (ECMA-48). It ignores colors and modes,
// and does not scroll.
type screen struct {
	cells [][]rune
	x, y  int
	rest  []byte // the beginning of a sequence that has not arrived whole
}

func newScreen(rows, columns int) *screen {
	s := &screen{cells: make([][]rune, rows)}
	for y := range s.cells {
		s.cells[y] = slices.Repeat([]rune{' '}, columns)
	}
	return s
}

// Write draws. It never fails.
func (s *screen) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for len(s.rest) > 0 {
		n := s.draw(s.rest)
		if n == 0 {
			break
		}
		s.rest = s.rest[n:]
	}
	return len(p), nil
}

// draw draws the first character or sequence of p and returns its length, or 0 if it is not whole.
func (s *screen) draw(p []byte) int {
	switch p[0] {
	case '\x1b':
		return s.escape(p)
	case '\r':
		s.x = 0
	case '\n':
		s.y = min(s.y+1, len(s.cells)-1)
	case '\b':
		s.x = max(s.x-1, 0)
	default:
		if p[0] < ' ' {
			break
		}
		if !utf8.FullRune(p) {
			return 0
		}
		r, size := utf8.DecodeRune(p)
		if s.x < len(s.cells[s.y]) {
			s.cells[s.y][s.x] = r
		}
		s.x++
		return size
	}
	return 1
}

// escape is draw for a sequence that begins with an escape.
func (s *screen) escape(p []byte) int {
	if len(p) < 2 {
		return 0
	}
	switch p[1] {
	case '[':
		end := slices.IndexFunc(p[2:], func(c byte) bool { return c >= 0x40 && c <= 0x7e })
		if end < 0 {
			return 0
		}
		s.control(string(p[2:2+end]), p[2+end])
		return 2 + end + 1
	case ']', 'P', '_', '^': // a text for the terminal
		for i := 2; i < len(p); i++ {
			if p[i] == '\a' {
				return i + 1
			}
			if p[i] == '\x1b' && i+1 < len(p) {
				return i + 2
			}
		}
		return 0
	case '(', ')', '*', '+': // a character set
		if len(p) < 3 {
			return 0
		}
		return 3
	}
	return 2
}

// control performs a control sequence.
func (s *screen) control(parameters string, final byte) {
	number := func(i, otherwise int) int {
		all := strings.Split(parameters, ";")
		if i >= len(all) {
			return otherwise
		}
		n, err := strconv.Atoi(all[i])
		if err != nil || n == 0 {
			return otherwise
		}
		return n
	}
	x, y := s.x, s.y
	switch final {
	case 'H', 'f':
		x, y = number(1, 1)-1, number(0, 1)-1
	case 'G':
		x = number(0, 1) - 1
	case 'd':
		y = number(0, 1) - 1
	case 'A':
		y -= number(0, 1)
	case 'B':
		y += number(0, 1)
	case 'C':
		x += number(0, 1)
	case 'D':
		x -= number(0, 1)
	case 'J', 'K':
		s.erase(final == 'J', number(0, 0))
	case 'X':
		s.blank(s.y, s.x, s.x+number(0, 1))
	}
	s.x = max(x, 0)
	s.y = min(max(y, 0), len(s.cells)-1)
}

// erase blanks what follows the cursor (0), precedes it (1), or all (2), of the screen or of the
// line.
func (s *screen) erase(whole bool, what int) {
	for y := range s.cells {
		switch {
		case y == s.y && what == 0:
			s.blank(y, s.x, len(s.cells[y]))
		case y == s.y && what == 1:
			s.blank(y, 0, s.x+1)
		case y == s.y, whole && (what == 2 || what == 0 && y > s.y || what == 1 && y < s.y):
			s.blank(y, 0, len(s.cells[y]))
		}
	}
}

func (s *screen) blank(y, from, to int) {
	for x := from; x < min(to, len(s.cells[y])); x++ {
		s.cells[y][x] = ' '
	}
}

// text returns the lines, without blanks at their ends.
func (s *screen) text() string {
	var out strings.Builder
	for _, line := range s.cells {
		out.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// session is a program at a terminal.
type session struct {
	cmd      *exec.Cmd
	terminal *os.File

	mu     sync.Mutex
	screen *screen
	ended  chan struct{} // closed when the program is gone
}

// startSession starts a program at a terminal, until the test ends.
func startSession(t *testing.T, rows, columns uint16, env []string, argv ...string) *session {
	t.Helper()
	s := &session{
		cmd:    exec.Command(argv[0], argv[1:]...),
		screen: newScreen(int(rows), int(columns)),
		ended:  make(chan struct{}),
	}
	s.cmd.Env = append(env, "TERM=xterm", "LC_ALL=C.UTF-8")
	s.cmd.Stderr = io.Discard // logs would cover the screen
	var err error
	s.terminal, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(writerFunc(s.show), s.terminal) // it ends with an error when the program has ended
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended
		<-s.ended
		_ = s.terminal.Close()
	})
	return s
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (s *session) show(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(p)
}

func (s *session) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.text()
}

// press sends keys.
func (s *session) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.terminal.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until the screen has all of some texts, and returns it.
func (s *session) waitFor(t *testing.T, texts ...string) string {
	t.Helper()
	var shown string
	wait.Eventually(t, limit, func() error {
		shown = s.text()
		select {
		case <-s.ended:
			t.Fatalf("%v has ended:\n%s", s.cmd.Args, shown)
		default:
		}
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return fmt.Errorf("no %q on the screen:\n%s", text, shown)
			}
		}
		return nil
	})
	return shown
}

// settled returns the view of the screen once the screen has all of some texts, and its view has
// been the same for a while. If that does not happen, it marks the test as failed and returns the
// last view.
func (s *session) settled(t *testing.T, view func(screen string) string, texts ...string) string {
	t.Helper()
	was, since := "", time.Time{}
	err := wait.For(t.Context(), time.Minute, func() error {
		shown := s.text()
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return fmt.Errorf("no %q on the screen:\n%s", text, view(shown))
			}
		}
		now := view(shown)
		if now != was {
			was, since = now, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return errors.New("the screen changes")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return was
}

// The screen shows what programs draw on a terminal.
func TestScreen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ drawn, want string }{
		{"a\r\nb", "a\nb\n"},
		{"\x1b[2;3Hx\x1b[1;1Hé\x1b[0;31m!\x1b[m", "é!\n  x\n"},
		{"abc\x1b[1;2H\x1b[K", "a\n"},
		{"abc\x1b[1;2H\x1b[1K", "  c\n"},
		{"abc\r\ndef\x1b[2J", "\n"},
		{"abc\r\ndef\x1b[1;3H\x1b[J", "ab\n"},
		{"abc\r\ndef\x1b[2;2H\x1b[1J", "\n  f\n"},
		{"\x1b]0;title\a\x1b(Ba\x1b[?1049hb\x1b=c", "abc\n"},
		{"abcdef\x1b[1;1Hxy\x1b[2Cz\x1b[2D-", "xyc-zf\n"},
		{"abcd\x1b[2G\x1b[2X", "a  d\n"},
		{"0123456789", "01234567\n"},
	} {
		for step := 1; step <= len(c.drawn); step++ { // however it arrives
			s := newScreen(3, 8)
			for at := 0; at < len(c.drawn); at += step {
				_, _ = s.Write([]byte(c.drawn[at:min(at+step, len(c.drawn))]))
			}
			if got := s.text(); got != c.want {
				t.Errorf("%q, %d bytes at a time: %q, want %q", c.drawn, step, got, c.want)
			}
		}
	}
}
