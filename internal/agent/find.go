package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/localbus"
	"github.com/kubecdc/kubecdc/internal/config"
)

const (
	// DefaultServer is the URL of an agent's HTTP server if no agent with an embedded JetStream
	// runs on this machine.
	DefaultServer = "http://127.0.0.1:8080"
	// DefaultBus is the URL of the bus in the same case.
	DefaultBus = "nats://127.0.0.1:4222"
	// ServerVariable is the environment variable with the agent's HTTP server, for commands without
	// --agent. The chart sets it in its pods, to the agent's own port.
	ServerVariable = "KUBECDC_AGENT"
)

// localBuses returns this user's embedded JetStreams, the one that was started last first: those of
// the default directories, or that of a named one.
func localBuses(dataDir string) []localbus.Address {
	if dataDir != "" {
		if at, ok := localbus.At(dataDir); ok {
			return []localbus.Address{at}
		}
		return nil
	}
	root, err := localbus.DefaultRoot(os.Getenv)
	if err != nil {
		return nil
	}
	up, err := localbus.Running(root)
	if err != nil {
		return nil
	}
	return up
}

// FindBus returns the URL of the embedded JetStream with the named directory. Without a name, it is
// the one that this user started last. If several run, it lists them on stderr.
func FindBus(dataDir string, stderr io.Writer) (string, error) {
	up := localBuses(dataDir)
	switch {
	case len(up) == 0 && dataDir != "":
		return "",
			fmt.Errorf("no agent of this user runs with --data-dir %s: start one (kubecdc run --data-dir %[1]s)",
				dataDir)
	case len(up) == 0:
		return DefaultBus, nil
	}
	if len(up) > 1 {
		fmt.Fprintf(stderr, "kubecdc: %d buses run here; this is %s of %s, started last. The others, for --bus:\n",
			len(up), up[0].URL, up[0].APIServer)
		for _, a := range up[1:] {
			fmt.Fprintf(stderr, "  %s of %s\n", a.URL, a.APIServer)
		}
	}
	return up[0].URL, nil
}

// BusOf is config.BusOf. If the URL is that of this user's embedded JetStream, in a default
// directory or in the named one, the bus sends its token, unless credentials are configured.
func BusOf(busURL, dataDir string, configured config.Bus) (config.Bus, bool) {
	b, ok := config.BusOf(busURL, configured)
	_, settings := b.Chosen()
	bus, readable := settings.(driver.Readable)
	if !ok || !readable {
		return b, ok
	}
	u, err := url.Parse(busURL)
	if err != nil || u.User != nil {
		return b, ok // several servers, which are not embedded, or credentials
	}
	host := strings.Replace(u.Host, "localhost:", "127.0.0.1:", 1)
	for _, at := range localBuses(dataDir) {
		if at.URL == u.Scheme+"://"+host {
			return b, bus.SetAccess(&driver.Access{Token: at.Token}) == nil
		}
	}
	return b, ok
}

// FindServer returns the URL of the HTTP server of the named agent, or else of the agent on this
// machine.
func FindServer(named string) (string, error) {
	option := "--agent"
	if named == "" {
		named, option = os.Getenv(ServerVariable), ServerVariable
	}
	if named != "" {
		server := named
		if !strings.Contains(server, "://") {
			server = "http://" + server
		}
		if u, err := url.Parse(server); err != nil || u.Scheme != "http" || u.Host == "" {
			return "", ConfigError{fmt.Errorf("%s: must be http://host:port, got %q", option, named)}
		}
		return strings.TrimSuffix(server, "/"), nil
	}
	up := localBuses("")
	switch len(up) {
	case 0:
		return DefaultServer, nil
	case 1:
		return cmp.Or(up[0].Agent, DefaultServer), nil
	}
	lines := make([]string, len(up))
	for i, a := range up {
		lines[i] = fmt.Sprintf("  %s of %s", a.Agent, a.APIServer)
	}
	return "", ConfigError{
		fmt.Errorf("%d agents run here; name one with --agent:\n%s", len(up), strings.Join(lines, "\n")),
	}
}

// FindSocket returns the path of an agent's socket. named is this path, or the URL of the agent's
// HTTP server, which reports the path. Without a name, it is the agent on this machine.
func FindSocket(ctx context.Context, named string) (string, error) {
	if path := strings.TrimPrefix(named, "unix:"); filepath.IsAbs(path) {
		return path, nil
	}
	if path := os.Getenv(admin.SocketVariable); named == "" && path != "" {
		return path, nil
	}
	server, err := FindServer(named)
	if err != nil {
		return "", err
	}
	s, err := admin.NewClient(server).Status(ctx, 0)
	if err != nil {
		return "", err
	}
	if s.Socket == "" {
		return "",
			fmt.Errorf(
				"the agent at %s, release %s, has no socket for commands: the agent's log has the reason, or use the kubecdc of its release",
				server, s.Version)
	}
	elsewhere := fmt.Errorf(
		"the agent at %s accepts commands at its socket %s, on its own machine and from its own user only: for a pod, use kubectl exec POD -- /kubecdc",
		server, s.Socket)
	same, err := admin.NewSocketClient(s.Socket).Status(ctx, 0)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", elsewhere, err)
	case !same.Started.Equal(s.Started):
		// the agent is on another machine, and a local agent has a socket of the same name
		return "", fmt.Errorf("%w: another agent is there", elsewhere)
	}
	return s.Socket, nil
}
