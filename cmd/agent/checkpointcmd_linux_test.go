package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY opens a pseudo terminal; both ends are closed with the test.
func openPTY(t *testing.T) (program, person *os.File) {
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
	return program, person
}

func TestAPersonIsAskedBeforeAReset(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "\x04": false} {
		program, person := openPTY(t)
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if got := confirmed(t.Context(), "pods", "checkpoint file x", program, program); got != want {
			t.Errorf("%q: got %v, want %v", answer, got, want)
		}
	}
}

// Whoever is asked may end the command instead.
func TestCtrlCEndsTheQuestion(t *testing.T) {
	t.Setenv("TERM", "xterm")
	program, _ := openPTY(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if confirmed(ctx, "", "checkpoint file x", program, program) {
		t.Error("Ctrl-C was taken for yes")
	}
}
