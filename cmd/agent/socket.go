package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubecdc/kubecdc/internal/filelock"
)

const (
	// socketVariable is the path of the socket, for the agent and for the commands that give it orders. The chart sets it in its pods.
	socketVariable = "KUBECDC_SOCKET"
	// mostSocketPath is how many bytes a path may have: sockaddr_un holds 104 on some systems, 108 on Linux, with a zero at the end.
	mostSocketPath = 103
	// mostSockets is how many agents of one user may run with a socket in the default directory.
	mostSockets = 100
)

// errSocketTaken says that another agent takes orders there.
var errSocketTaken = errors.New("another agent takes orders there")

// socket is where orders come in. Its lock tells a socket in use from one that a killed agent left behind.
type socket struct {
	net.Listener
	path string
	lock *os.File
}

// Close implements net.Listener. It removes the socket; the lock's file stays, since another agent may have opened it.
func (s *socket) Close() error { return errors.Join(s.Listener.Close(), s.lock.Close()) }

// openSocket listens at $KUBECDC_SOCKET, or at the first free name in the default directory.
func openSocket(ctx context.Context, getenv func(string) string) (*socket, error) {
	if path := getenv(socketVariable); path != "" {
		s, err := listenUnix(ctx, path)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s: %s: %w", socketVariable, path, err)}
		}
		return s, nil
	}
	dir, err := socketDirectory(getenv)
	if err != nil {
		return nil, err
	}
	for i := range mostSockets {
		name := "agent.sock"
		if i > 0 {
			name = fmt.Sprintf("agent-%d.sock", i+1)
		}
		s, err := listenUnix(ctx, filepath.Join(dir, name))
		if !errors.Is(err, errSocketTaken) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%s: %d agents have a socket there", dir, mostSockets)
}

// listenUnix listens at path, in the place of a socket that nobody uses any more.
func listenUnix(ctx context.Context, path string) (_ *socket, err error) {
	switch {
	case !filepath.IsAbs(path):
		return nil, errors.New("must be an absolute path")
	case len(path) > mostSocketPath:
		return nil, fmt.Errorf("must have at most %d bytes, as the path of a socket, and has %d", mostSocketPath, len(path))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, errors.New("is there already, and no socket")
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
		return nil, errSocketTaken
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
	return &socket{l, path, lock}, nil
}

// socketClient asks at a socket. Only the path of a URL counts; its host is orderHost.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}
}

const orderHost = "http://kubecdc"

// takeOrders opens the agent's socket. Without one an agent captures all the same, unless $KUBECDC_SOCKET asks for it.
func takeOrders(ctx context.Context, log *slog.Logger) (*socket, error) {
	s, err := openSocket(ctx, os.Getenv)
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return nil, err
	case err != nil:
		log.Warn("no socket for orders: kubecdc snapshot and profiles do not work with this agent", "err", err,
			"advice", "set "+socketVariable+" to a path that the agent may write")
		return nil, nil //nolint:nilnil // there is none
	}
	return s, nil
}

// findSocket returns the path of the socket of the agent that is named: itself by a path, or its HTTP server, which says where the
// socket is. Without a name it is the one of this machine.
func findSocket(ctx context.Context, named string) (string, error) {
	if path := strings.TrimPrefix(named, "unix:"); filepath.IsAbs(path) {
		return path, nil
	}
	if path := os.Getenv(socketVariable); named == "" && path != "" {
		return path, nil
	}
	agent, err := findAgent(named)
	if err != nil {
		return "", usageError{err}
	}
	s, err := (&statusView{agent: agent, output: "text"}).ask(ctx)
	if err != nil {
		return "", err
	}
	if s.Socket == "" {
		return "", fmt.Errorf("the agent at %s, release %s, has no socket for orders: its log says why, or use the kubecdc of its release", agent, s.Version)
	}
	elsewhere := fmt.Errorf("the agent at %s takes orders at its socket %s, on its own machine and from its own user: in its pod, kubectl exec POD -- /kubecdc", agent, s.Socket)
	same, err := (&statusView{agent: orderHost, socket: s.Socket, output: "text"}).ask(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", elsewhere, err)
	case !same.Started.Equal(s.Started): // the agent is on another machine, and one of this machine has a socket of the same name
		return "", fmt.Errorf("%w: another agent is there", elsewhere)
	}
	return s.Socket, nil
}
