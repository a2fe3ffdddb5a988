package kafka_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/kafka"
)

// script writes a program of that name into dir.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestAvailableSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	wants := func(want string) {
		t.Helper()
		if err := kafka.Available(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("available: %v, want %q", err, want)
		}
	}
	wants("no JDK 17")
	script(t, dir, "java", `echo 'openjdk version "11.0.2" 2019-01-15' >&2`)
	wants("java is version 11")
	script(t, dir, "java", `echo 'openjdk version "21" 2023-09-19' >&2`)
	wants("no mvn")
	script(t, dir, "mvn", "echo 'no such artifact'; exit 1")
	if err := kafka.Available(); err != nil {
		t.Errorf("available: %v", err)
	}
	// The error includes Maven's message, and nothing is left that looks installed.
	if err := kafka.Install(t.Context(), new(bytes.Buffer)); err == nil ||
		!strings.Contains(err.Error(), "no such artifact") {
		t.Errorf("install: %v, want what mvn says", err)
	}
	script(t, dir, "mvn", "exit 0")
	if err := kafka.Install(t.Context(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "no jar") {
		t.Errorf("install: %v, want that there is no jar", err)
	}
}

func TestConcurrentInstallersInstallOnce(t *testing.T) {
	needsBroker(t)
	if _, err := exec.LookPath("mvn"); err != nil {
		t.Skip("no mvn: the jars are of an earlier run")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // the cache on macOS
	var said [3]bytes.Buffer
	var g errgroup.Group
	for i := range said {
		g.Go(func() error { return kafka.Install(t.Context(), &said[i]) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	installed := 0
	for i := range said {
		installed += strings.Count(said[i].String(), "kafka: installed in")
	}
	if installed != 1 {
		t.Errorf("installed %d times, want once", installed)
	}
	var again bytes.Buffer
	if err := kafka.Install(t.Context(), &again); err != nil || again.Len() != 0 {
		t.Errorf("nothing to install, but it says %q, %v", again.String(), err)
	}
}
