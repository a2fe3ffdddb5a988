package terminal_test

import (
	"context"
	"testing"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/screen/terminal/ptytest"
)

func TestConfirm(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "\x04": false} {
		program, person := ptytest.Open(t, 80, 24)
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if got := terminal.Confirm(t.Context(), "Remove?", program, program); got != want {
			t.Errorf("%q: got %v, want %v", answer, got, want)
		}
	}
}

// The user can interrupt the command instead of answering.
func TestConfirmEndsWithCtrlC(t *testing.T) {
	t.Setenv("TERM", "xterm")
	program, _ := ptytest.Open(t, 80, 24)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if terminal.Confirm(ctx, "Remove?", program, program) {
		t.Error("Ctrl-C was taken for yes")
	}
}
