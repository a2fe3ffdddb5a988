package terminal_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen is an emulated terminal: what a person sees.
type screen struct {
	t *testing.T

	mu     sync.Mutex
	vt     vt10x.Terminal
	writes int
}

func newScreen(t *testing.T, columns, rows int) (*screen, *terminal.Output) {
	s := &screen{t: t, vt: vt10x.New(vt10x.WithSize(columns, rows))}
	return s, &terminal.Output{Writer: s, Interactive: true, Color: true, Width: columns, Size: s.size}
}

// Write does what the tty in front of the terminal does: it makes a carriage return and a line feed
// of a line feed. After each write the terminal must be fit for use, as the process may be killed
// then.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if _, err := s.vt.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	if !s.vt.CursorVisible() {
		s.t.Errorf("the cursor is hidden after %q", p)
	}
	return len(p), nil
}

func (s *screen) size() (columns, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.Size()
}

func (s *screen) resize(columns, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vt.Resize(columns, rows)
}

// count is the number of writes so far.
func (s *screen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// text is what the screen shows, without what is empty at the ends.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.Split(s.vt.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// shows compares the screen with lines.
func (s *screen) shows(lines ...string) {
	s.t.Helper()
	if diff := cmp.Diff(lines, strings.Split(s.text(), "\n")); diff != "" {
		s.t.Errorf("screen (-want +got):\n%s\n%s", diff, s.text())
	}
}

// color is the foreground colour of the first occurrence of text.
func (s *screen) color(text string) vt10x.Color {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for y, l := range strings.Split(s.vt.String(), "\n") {
		if before, _, ok := strings.Cut(l, text); ok {
			return s.vt.Cell(len([]rune(before)), y).FG
		}
	}
	s.t.Errorf("%q is not on the screen", text)
	return 0
}
