package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubecdc/kubecdc/internal/admin"
)

// defaultAgent is the default address of an agent.
const defaultAgent = "http://127.0.0.1:8080"

// agentVariable is the environment variable for the agent if --agent is not set. The chart sets it in its pods, to the agent's own port.
const agentVariable = "KUBECDC_AGENT"

// findAgent returns the URL of the HTTP server of the named agent, or else of the agent on this machine.
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

// findSocket returns the path of an agent's socket. named is this path, or the URL of the agent's HTTP server, which reports the path.
// Without a name, it is the agent on this machine.
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
		return "", fmt.Errorf("the agent at %s, release %s, has no socket for commands: the agent's log has the reason, or use the kubecdc of its release", agent, s.Version)
	}
	elsewhere := fmt.Errorf("the agent at %s accepts commands at its socket %s, on its own machine and from its own user only: for a pod, use kubectl exec POD -- /kubecdc", agent, s.Socket)
	same, err := admin.NewSocketClient(s.Socket).Status(ctx, 0)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", elsewhere, err)
	case !same.Started.Equal(s.Started): // the agent is on another machine, and a local agent has a socket of the same name
		return "", fmt.Errorf("%w: another agent is there", elsewhere)
	}
	return s.Socket, nil
}
