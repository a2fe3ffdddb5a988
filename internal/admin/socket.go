package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/kubecdc/kubecdc/internal/filelock"
)

const (
	// SocketVariable is the environment variable with the path of the socket, for the agent and for
	// its commands. The chart sets it in its pods.
	SocketVariable = "KUBECDC_SOCKET"
	// maxSocketPath limits the bytes of a path: sockaddr_un holds 104 on some systems and 108 on
	// Linux, with a zero at the end.
	maxSocketPath = 103
	// maxSockets limits the agents of one user that have a socket in the default directory.
	maxSockets = 100
)

// ErrSocketInUse is the error of a socket at which another agent listens.
var ErrSocketInUse = errors.New("another agent uses it")

// Socket is a Unix socket for commands. Its lock distinguishes a socket in use from one that a
// killed agent left behind.
type Socket struct {
	net.Listener
	path string
	lock *os.File
}

// Path returns the path of the socket.
func (s *Socket) Path() string { return s.path }

// Close implements net.Listener. It removes the socket. The lock file stays, because another agent
// may have opened it.
func (s *Socket) Close() error { return errors.Join(s.Listener.Close(), s.lock.Close()) }

// OpenDefaultSocket listens at the first free name in the default directory.
func OpenDefaultSocket(ctx context.Context, getenv func(string) string) (*Socket, error) {
	dir, err := socketDirectory(getenv)
	if err != nil {
		return nil, err
	}
	for i := range maxSockets {
		name := "agent.sock"
		if i > 0 {
			name = fmt.Sprintf("agent-%d.sock", i+1)
		}
		s, err := OpenSocket(ctx, filepath.Join(dir, name))
		if !errors.Is(err, ErrSocketInUse) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%s: %d agents have a socket there", dir, maxSockets)
}

// OpenSocket listens at path. It replaces a socket that is no longer in use.
func OpenSocket(ctx context.Context, path string) (_ *Socket, err error) {
	switch {
	case !filepath.IsAbs(path):
		return nil, errors.New("must be an absolute path")
	case len(path) > maxSocketPath:
		return nil,
			fmt.Errorf("must have at most %d bytes, because it is the path of a socket; it has %d", maxSocketPath,
				len(path))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, errors.New("exists already, and is not a socket")
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := filelock.Exclusive(lock); errors.Is(err, filelock.ErrLocked) {
		return nil, ErrSocketInUse
	} else if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config := net.ListenConfig{Control: private}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return &Socket{l, path, lock}, nil
}
