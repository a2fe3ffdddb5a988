package terminal_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/screen/terminal/ptytest"
)

func TestDetectTerminal(t *testing.T) {
	program, person := ptytest.Open(t, 132, 43)
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
				t.Errorf("interactive %t, colour %t, width %d; want %t, %t, 132", o.Interactive, o.Color, o.Width,
					test.interactive, test.color)
			}
		})
	}
	o := terminal.Detect(program, env())
	ptytest.Resize(t, person, 77, 20)
	if width, height := o.Size(); width != 77 || height != 20 {
		t.Errorf("after a resize: %d×%d, want 77×20", width, height)
	}
	program.Close()
	if width, height := o.Size(); width != 0 || height != 0 {
		t.Errorf("of a terminal that is gone: %d×%d", width, height)
	}
}
