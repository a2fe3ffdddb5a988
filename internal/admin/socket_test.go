package admin

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// shortDir is a directory for a socket, whose path must not be long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cdc") //nolint:usetesting // the path of t.TempDir has the name of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// No other user can open the socket. A socket that a killed agent left behind is replaced, one in
// use is not.
func TestSocketIsPrivateAndOfOneAgent(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "agent.sock")
	first, err := OpenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
	if _, err := OpenSocket(t.Context(), path); !errors.Is(err, ErrSocketInUse) {
		t.Errorf("got %v, want ErrSocketInUse", err)
	}
	first.Listener.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	second, err := OpenSocket(t.Context(), path)
	if err != nil {
		t.Fatalf("after the first one was killed: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}

	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file: "exists already, and is not a socket", "agent.sock": "must be an absolute path",
		filepath.Join(dir,
			strings.Repeat("x", 200)): "must have at most 103 bytes, because it is the path of a socket; it has ",
	} {
		if _, err := OpenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

// Several agents of a user have a socket each, in a directory of that user.
func TestSocketsOfSeveralAgents(t *testing.T) {
	root := shortDir(t)
	getenv := func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": root}[name] }
	for _, want := range []string{"agent.sock", "agent-2.sock", "agent-3.sock"} {
		s, err := OpenDefaultSocket(t.Context(), getenv)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := filepath.Base(s.Path()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(filepath.Join(root, "kubecdc"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDefaultSocket(t.Context(), getenv); err == nil ||
		!strings.Contains(err.Error(), "must be a directory of user ") {
		t.Errorf("in a directory that others can write to: %v", err)
	}
}
