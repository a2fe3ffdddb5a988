package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal/ptytest"
)

// slowRecord is a file that has a part of a record at first, and the rest later.
type slowRecord struct {
	path string
	rest string
	w    *os.File
}

func newSlowRecord(t *testing.T) *slowRecord {
	t.Helper()
	s := &slowRecord{path: filepath.Join(t.TempDir(), "record.jsonl")}
	if err := syscall.Mkfifo(s.path, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin waits until a command reads the file, and writes the first lines.
func (s *slowRecord) begin(t *testing.T, lines []string) {
	t.Helper()
	var err error
	s.w, err = os.OpenFile(s.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.WriteString(strings.Join(lines[:5], "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
	s.rest = strings.Join(lines[5:], "\n") + "\n"
}

func (s *slowRecord) end(t *testing.T) {
	t.Helper()
	if _, err := s.w.WriteString(s.rest); err != nil {
		t.Error(err)
	}
	if err := s.w.Close(); err != nil {
		t.Error(err)
	}
}

// A question that takes longer than a second shows at a terminal how many events were read. It
// shows nothing if standard error is not a terminal, or if the answer appears at the terminal
// meanwhile.
func TestProgressOfAQuestion(t *testing.T) {
	_, lines := recorded(t)
	t.Setenv("TERM", "xterm")
	const progress = "reading the record: 5 events"
	get := func(s *slowRecord) []string {
		return []string{"get", "deploy", "--at", "rv:145", "--bus", "file:" + s.path}
	}

	var commands sync.WaitGroup
	piped, pipedErr := newSlowRecord(t), bytes.Buffer{}
	commands.Go(func() { run(t.Context(), get(piped), io.Discard, &pipedErr) })
	piped.begin(t, lines)

	streaming, streamed := newSlowRecord(t), bytes.Buffer{}
	answer, person := ptytest.Open(t, 0, 0)
	commands.Go(func() {
		run(t.Context(),
			[]string{"history", "deploy", "--no-pager", "--until", "rv:145", "--bus", "file:" + streaming.path}, answer,
			answer)
		answer.Close()
	})
	commands.Go(func() { _, _ = io.Copy(&streamed, person) }) // ends with an error when the program's end is closed
	streaming.begin(t, lines)

	// The last command shows progress after a second, so the others have read for longer.
	shown := newSlowRecord(t)
	stderr, screen := ptytest.Open(t, 0, 0)
	commands.Go(func() {
		run(t.Context(), get(shown), io.Discard, stderr)
		stderr.Close()
	})
	shown.begin(t, lines)
	// the command ends, and the reading of the screen
	giveUp := time.AfterFunc(20*time.Second, func() { shown.w.Close() })
	var seen strings.Builder
	part := make([]byte, 1024)
	for !strings.Contains(seen.String(), progress) {
		n, err := screen.Read(part)
		if err != nil {
			t.Fatalf("standard error ends without progress: %v: %q", err, seen.String())
		}
		seen.Write(part[:n])
	}
	giveUp.Stop()
	for _, s := range []*slowRecord{piped, streaming, shown} {
		s.end(t)
	}
	_, _ = io.Copy(io.Discard, screen)
	commands.Wait()
	for name, text := range map[string]string{
		"a pipe":                    pipedErr.String(),
		"an answer at the terminal": streamed.String(),
	} {
		if strings.Contains(text, "reading the record") || !strings.Contains(text, "at rv:145") {
			t.Errorf("%s: want the certainty and no progress, got %q", name, text)
		}
	}
}

// A command shows at a terminal that it waits, before the bus has sent anything: a server that has
// just started reads its disk first. It shows nothing if standard error is not a terminal.
func TestProgressBeforeTheFirstEvent(t *testing.T) {
	_, lines := recorded(t)
	t.Setenv("TERM", "xterm")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"get": {[]string{"get", "deploy", "--at", "rv:145"}, "waiting for the first event of the record"},
		"history": {[]string{
			"history", "deploy", "--no-pager", "--until", "rv:145",
		}, "waiting for the first event of the record"},
		// it is not exact, so the command ends
		"serve": {[]string{
			"serve", "--exact", "--at", "2026-11-20T14:08:00Z",
		}, "waiting for the first event of the record"},
		"tail": {[]string{"tail", "deploy", "--no-follow"}, "waiting for the bus"},
	} {
		t.Run(name, func(t *testing.T) {
			var commands sync.WaitGroup
			piped, pipedErr := newSlowRecord(t), bytes.Buffer{}
			commands.Go(func() { run(t.Context(), append(c.args, "--bus", "file:"+piped.path), io.Discard, &pipedErr) })
			shown := newSlowRecord(t)
			stderr, screen := ptytest.Open(t, 0, 0)
			commands.Go(func() {
				run(t.Context(), append(c.args, "--bus", "file:"+shown.path), stderr, stderr)
				stderr.Close()
			})
			end := func(s *slowRecord) {
				s.begin(t, lines)
				s.end(t)
			}
			// the command ends, and the reading of the screen
			giveUp := time.AfterFunc(20*time.Second, func() { end(shown) })
			var seen strings.Builder
			part := make([]byte, 1024)
			for !strings.Contains(seen.String(), c.want) {
				n, err := screen.Read(part)
				if err != nil {
					t.Fatalf("standard error ends without progress: %v: %q", err, seen.String())
				}
				seen.Write(part[:n])
			}
			giveUp.Stop()
			commands.Go(func() { end(shown) })
			end(piped)
			_, _ = io.Copy(io.Discard, screen)
			commands.Wait()
			if strings.Contains(pipedErr.String(), "waiting for") {
				t.Errorf("a pipe: %q", pipedErr.String())
			}
		})
	}
}
