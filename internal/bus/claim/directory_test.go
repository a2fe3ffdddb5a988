package claim_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/claim"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by it")
	c, err := claim.NewDirectory(dir, nil, bustest.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"first", "second"} {
		ref, err := c.Put(t.Context(), "c0ffee", "text/plain", []byte(body), nil)
		if want := "file://" + strings.ReplaceAll(dir, " ", "%20") + "/c0ffee.json"; err != nil || ref != want {
			t.Fatalf("%s, %v, want %s", ref, err, want)
		}
		got, err := os.ReadFile(filepath.Join(dir, "c0ffee.json"))
		if err != nil || string(got) != body {
			t.Errorf("%q, %v", got, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "c0ffee.json"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := claim.NewDirectory("claims", nil, bustest.Discard, nil); err == nil {
		t.Error("a relative path is taken")
	}
}

func TestDirectoryRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := claim.NewDirectory(file, nil, bustest.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "c0ffee", "text/plain", nil, nil); !errors.Is(err, publish.ErrRefused) ||
		!strings.Contains(err.Error(), file) {
		t.Errorf("a file in place of the directory: %v", err)
	}
}

// A directory that takes nothing for now is waited for.
func TestDirectoryWaits(t *testing.T) {
	dir, log := t.TempDir(), new(bustest.LogBuffer)
	c, err := claim.NewDirectory(dir, nil, log.Logger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "c0ffee.json"), 0o700); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil)
		done <- err
	}()
	bustest.Wait(t, "the log says so", func() bool {
		return bustest.Lines(log.String(), "later changes of its object wait") == 1
	})
	if err := os.Remove(filepath.Join(dir, "c0ffee.json")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// flicker shuts after so many passes.
type flicker struct{ left atomic.Int64 }

func (f *flicker) Pass(ctx context.Context) error {
	if f.left.Add(-1) >= 0 {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// A directory has no half of a claim, whenever the fence shuts.
func TestDirectoryBehindAFence(t *testing.T) {
	dir := t.TempDir()
	f := new(flicker)
	f.left.Store(1) // between the file and its name
	c, err := claim.NewDirectory(dir, f, bustest.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Put(ctx, "c0ffee", "text/plain", []byte("x"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if all, _ := filepath.Glob(filepath.Join(dir, "*")); len(all) > 0 {
		t.Errorf("%v", all)
	}
}
