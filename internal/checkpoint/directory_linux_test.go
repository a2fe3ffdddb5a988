package checkpoint_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// The directory is for its owner alone, with what another user has left in it, and what a link
// points to stays whose it was.
func TestMakeDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	const owner = 65532
	outside := filepath.Join(t.TempDir(), "outside")
	dir := filepath.Join(t.TempDir(), "lib", "kubecdc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(dir, "checkpoint.json")
	lock := saved + ".lock"
	for _, file := range []string{outside, saved, lock} {
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // The second time it is there already.
		if err := checkpoint.MakeDirectory(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]uint32{dir: owner, saved: owner, lock: owner, outside: 0} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != want || s.Gid != want {
			t.Errorf("%s belongs to %d:%d, want %d", path, s.Uid, s.Gid, want)
		}
		if path == dir && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
	}
}
