package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/localbus"
	"github.com/kubecdc/kubecdc/internal/config"
)

// dataDirectory returns the directory of the embedded JetStream: the configured one, or one for
// each cluster.
func dataDirectory(named string, uid func() (string, error)) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	root, err := localbus.DefaultRoot(os.Getenv)
	if err != nil {
		return "", err
	}
	id, err := uid()
	if err != nil {
		return "", err
	}
	if err := checkDirectoryName(id); err != nil {
		return "", fmt.Errorf("%w: name one with --data-dir", err)
	}
	return filepath.Join(root, id), nil
}

// checkDirectoryName returns an error if a cluster's uid cannot be the name of a directory.
func checkDirectoryName(uid string) error {
	if !filepath.IsLocal(uid) || filepath.Base(uid) != uid {
		return fmt.Errorf(
			"the API server says that the uid of namespace kube-system is %q, which cannot name a directory", uid)
	}
	return nil
}

// startLocalBus starts the embedded JetStream. agent is the URL of the agent's HTTP server.
func startLocalBus(
	ctx context.Context, dataDir, uid, agent string, apiServer *url.URL, log *slog.Logger,
) (*localbus.Bus, error) {
	dataDir, err := dataDirectory(dataDir, func() (string, error) { return uid, nil })
	if err != nil {
		return nil, err
	}
	bare := *apiServer
	bare.User = nil
	b, err := localbus.Start(ctx, localbus.Options{
		Dir:       dataDir,
		Cluster:   uid,
		APIServer: bare.String(),
		Agent:     agent,
		Log:       log,
	})
	if err != nil {
		return nil, err
	}
	log.Info("embedded JetStream listens", "url", b.URL(), "data_dir", b.Dir())
	return b, nil
}

// busOfLocal returns the bus with which the agent connects to its embedded JetStream.
func busOfLocal(local *localbus.Bus, configured config.Bus) (config.Bus, error) {
	b, ok := config.BusOf(local.URL(), configured)
	_, settings := b.Chosen()
	bus, readable := settings.(driver.Readable)
	if !ok || !readable {
		return nil, fmt.Errorf("%s is the URL of no bus", local.URL())
	}
	return b, bus.SetAccess(&driver.Access{Token: local.Token})
}

// listen opens the port of the HTTP server at the configured address. Without a configuration file,
// it uses the loopback interface and the default port, or one of the next ports.
func listen(ctx context.Context, address string, configured bool) (net.Listener, error) {
	var config net.ListenConfig
	if configured {
		l, err := config.Listen(ctx, "tcp", address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return nil,
				fmt.Errorf(
					"server.address: %s is in use: stop the program that listens there, or set another address: %w",
					address, err)
		case err != nil:
			return nil, fmt.Errorf("server.address: %w", err)
		}
		return l, nil
	}
	const first, tries = 8080, 100
	var err error
	for i := range tries + 1 {
		port := first + i
		if i == tries {
			port = 0 // any
		}
		l, e := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if e == nil {
			return l, nil
		}
		err = cmp.Or(err, e)
	}
	return nil, fmt.Errorf("listen for /metrics, /healthz and /readyz: %w", err)
}
