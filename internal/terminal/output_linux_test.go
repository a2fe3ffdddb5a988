package terminal_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubecdc/kubecdc/internal/terminal"
)

// openPTY opens a pseudo terminal; both ends are closed with the test.
func openPTY(t *testing.T, columns, rows int) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	resizePTY(t, person, columns, rows)
	return program, person
}

func resizePTY(t *testing.T, person *os.File, columns, rows int) {
	t.Helper()
	size := &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}
	if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
}

func TestDetectTerminal(t *testing.T) {
	program, person := openPTY(t, 132, 43)
	for _, test := range []struct {
		name               string
		env                []string
		interactive, color bool
	}{
		{"a terminal", []string{"TERM", "xterm-256color", "COLUMNS", "80"}, true, true},
		{"without colour", []string{"TERM", "xterm", "NO_COLOR", "1"}, true, false},
		{"that can do nothing", []string{"TERM", "dumb"}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := terminal.Detect(program, env(test.env...))
			if o.Interactive != test.interactive || o.Color != test.color || o.Width != 132 {
				t.Errorf("interactive %t, colour %t, width %d; want %t, %t, 132", o.Interactive, o.Color, o.Width, test.interactive, test.color)
			}
		})
	}
	o := terminal.Detect(program, env())
	resizePTY(t, person, 77, 20)
	if width, height := o.Size(); width != 77 || height != 20 {
		t.Errorf("after a resize: %d×%d, want 77×20", width, height)
	}
	program.Close()
	if width, height := o.Size(); width != 0 || height != 0 {
		t.Errorf("of a terminal that is gone: %d×%d", width, height)
	}
}
