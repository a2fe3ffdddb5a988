package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/screen/terminal/ptytest"
)

// shownAt runs a command at a terminal and returns what the person sees.
func shownAt(t *testing.T, args ...string) (screen, said string, code int) {
	t.Helper()
	program, person := ptytest.Open(t, 0, 0)
	var seen bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&seen, person) // ends with an error when the program's end is closed
	}()
	var stderr bytes.Buffer
	code = run(t.Context(), args, program, &stderr)
	program.Close()
	<-done
	return seen.String(), stderr.String(), code
}

// At a terminal the answer goes through $KUBECDC_PAGER, else $PAGER. There is none with --no-pager,
// and for a pipe.
func TestPager(t *testing.T) {
	file, _ := recorded(t)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	marks := func(name string) string {
		path := filepath.Join(t.TempDir(), name)
		script := []byte("#!/bin/sh\necho by " + name + "\nexec cat\n")
		if err := os.WriteFile(path, script, 0o700); err != nil { //nolint:gosec // it is executed
			t.Fatal(err)
		}
		return path
	}
	one, two := marks("one"), marks("two")
	for _, c := range []struct {
		name, kubecdc, pager string
		args                 []string
		want                 string
	}{
		{"PAGER", "", one, nil, "by one"},
		{"KUBECDC_PAGER before PAGER", two, one, nil, "by two"},
		{"--no-pager", two, one, []string{"--no-pager"}, ""},
		{"--pager before both", "false", "false", []string{"--pager", one}, "by one"},
		{"cat is none", "cat", one, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBECDC_PAGER", c.kubecdc)
			t.Setenv("PAGER", c.pager)
			for _, command := range [][]string{
				{"get", "deploy", "--at", "rv:145"},
				{"history", "deploy/web", "--until", "rv:145"},
				{"diff", "rv:105", "rv:145"},
				{"blame", "deploy/web", "--at", "rv:145"},
			} {
				args := append(append(command, "--bus", "file:"+file), c.args...)
				screen, said, code := shownAt(t, args...)
				pager, _, _ := strings.Cut(screen, "\r\n")
				if !strings.HasPrefix(pager, "by ") {
					pager = ""
				}
				if code != exitOK || pager != c.want || !strings.Contains(screen, "web") {
					t.Errorf("%v: code %d, pager %q, screen %q, standard error %q", command, code, pager, screen, said)
				}
				if got := answerOf(t, args...); strings.HasPrefix(got.Out, "by ") {
					t.Errorf("%v: a pager for a pipe: %q", command, got.Out)
				}
			}
		})
	}
}

// A pager that is left early, or does not exist, is no error of the command.
func TestPagerThatIsLeft(t *testing.T) {
	file, _ := recorded(t)
	t.Setenv("TERM", "xterm")
	if _, said, code := shownAt(t, "history", "all", "--bus", "file:"+file, "--pager", "true"); code != exitOK {
		t.Errorf("left early: code %d, %q", code, said)
	}
	screen, said, code := shownAt(t, "get", "deploy", "--at", "rv:145", "--bus", "file:"+file, "--pager",
		"no-such-pager -x")
	if code != exitOK || !strings.Contains(screen, "web") || !strings.Contains(said, `pager "no-such-pager -x": `) {
		t.Errorf("does not exist: code %d, screen %q, standard error %q", code, screen, said)
	}
}
