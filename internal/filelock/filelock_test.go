package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/filelock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two open files of one name stand for two processes.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	held := open()
	if err := filelock.Wait(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	other := open()
	for what, lock := range map[string]func() error{
		"exclusive": func() error { return filelock.Exclusive(other) },
		"shared":    func() error { return filelock.Shared(other) },
		"wait":      func() error { return filelock.Wait(t.Context(), other) },
		"wait, context ended": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return filelock.Wait(ctx, other)
		},
	} {
		if err := lock(); !errors.Is(err, filelock.ErrLocked) {
			t.Errorf("%s: %v, want ErrLocked", what, err)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := filelock.Shared(other); err != nil {
		t.Errorf("after the lock has ended: %v", err)
	}
	if err := filelock.Shared(open()); err != nil {
		t.Errorf("shared by two: %v", err)
	}
}
