package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubecdc/kubecdc/internal/admin"
)

// defaultAgent is where an agent listens unless it is told otherwise.
const defaultAgent = "http://127.0.0.1:8080"

// agentVariable names the agent where --agent does not. The chart sets it in its pods, to the port that it has the agent listen on.
const agentVariable = "KUBECDC_AGENT"

// findAgent is the URL of the HTTP server of the agent that is named, else of the one of this machine.
func findAgent(named string) (string, error) {
	option := "--agent"
	if named == "" {
		named, option = os.Getenv(agentVariable), agentVariable
	}
	if named != "" {
		agent := named
		if !strings.Contains(agent, "://") {
			agent = "http://" + agent
		}
		if u, err := url.Parse(agent); err != nil || u.Scheme != "http" || u.Host == "" {
			return "", fmt.Errorf("%s: must be http://host:port, got %q", option, named)
		}
		return strings.TrimSuffix(agent, "/"), nil
	}
	up := running()
	if len(up) > 1 {
		lines := make([]string, len(up))
		for i, a := range up {
			lines[i] = fmt.Sprintf("  %s of %s", a.Agent, a.APIServer)
		}
		return "", fmt.Errorf("%d agents run here; name one with --agent:\n%s", len(up), strings.Join(lines, "\n"))
	}
	if len(up) == 1 {
		return cmp.Or(up[0].Agent, defaultAgent), nil
	}
	return defaultAgent, nil
}

// openSocket opens the agent's command socket. Without one an agent captures all the same, unless $KUBECDC_SOCKET names it.
func openSocket(ctx context.Context, log *slog.Logger) (*admin.Socket, error) {
	if path := os.Getenv(admin.SocketVariable); path != "" {
		s, err := admin.OpenSocket(ctx, path)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s: %s: %w", admin.SocketVariable, path, err)}
		}
		return s, nil
	}
	s, err := admin.OpenDefaultSocket(ctx, os.Getenv)
	if err != nil {
		log.Warn("no socket for orders: kubecdc snapshot and profiles do not work with this agent", "err", err,
			"advice", "set "+admin.SocketVariable+" to a path that the agent may write")
		return nil, nil //nolint:nilnil // there is none
	}
	return s, nil
}

// findSocket returns the path of an agent's socket. Named is that path, or the URL of its HTTP server, which knows the path. Without
// a name it is the agent of this machine.
func findSocket(ctx context.Context, named string) (string, error) {
	if path := strings.TrimPrefix(named, "unix:"); filepath.IsAbs(path) {
		return path, nil
	}
	if path := os.Getenv(admin.SocketVariable); named == "" && path != "" {
		return path, nil
	}
	agent, err := findAgent(named)
	if err != nil {
		return "", usageError{err}
	}
	s, err := admin.NewClient(agent).Status(ctx, 0)
	if err != nil {
		return "", err
	}
	if s.Socket == "" {
		return "", fmt.Errorf("the agent at %s, release %s, has no socket for orders: its log says why, or use the kubecdc of its release", agent, s.Version)
	}
	elsewhere := fmt.Errorf("the agent at %s takes orders at its socket %s, on its own machine and from its own user: in its pod, kubectl exec POD -- /kubecdc", agent, s.Socket)
	same, err := admin.NewSocketClient(s.Socket).Status(ctx, 0)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", elsewhere, err)
	case !same.Started.Equal(s.Started): // the agent is on another machine, and one of this machine has a socket of the same name
		return "", fmt.Errorf("%w: another agent is there", elsewhere)
	}
	return s.Socket, nil
}
