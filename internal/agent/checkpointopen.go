package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// KeptCheckpoint is the checkpoint of an agent, for commands beside that agent.
type KeptCheckpoint struct {
	checkpoint.Store

	Config *config.Config // of the agent

	options  *Options
	location checkpointLocation
	host     string // API server of a checkpoint in a ConfigMap; "" for a file
	timeout  time.Duration
	stderr   io.Writer
}

// OpenCheckpoint opens the checkpoint of an agent with these options. timeout limits each wait for
// the API server, and stderr shows it.
func OpenCheckpoint(ctx context.Context, o *Options, timeout time.Duration, stderr io.Writer) (*KeptCheckpoint, error) {
	cfg, err := o.LoadConfig()
	if err != nil {
		return nil, err
	}
	if !KeepsCheckpoint(cfg) {
		return nil, ConfigError{
			errors.New("the bus stdout has no checkpoint, unless the configuration sets one (checkpoint)"),
		}
	}
	find := sync.OnceValues(o.FindCluster)
	k := &KeptCheckpoint{
		Config:  cfg,
		options: o,
		timeout: timeout,
		stderr:  stderr,
	}
	location, err := locateCheckpoint(o, cfg, find, func() (string, error) {
		c, err := find()
		if err != nil {
			return "", err
		}
		return k.askUID(ctx, c)
	})
	if err == nil {
		k.Store, err = location.open(find)
	}
	if err != nil {
		return nil, err
	}
	k.location = location
	if location.ConfigMap != nil {
		c, err := find()
		if err != nil {
			return nil, err
		}
		k.host = c.Host()
	}
	return k, nil
}

// IsUnlocked reports whether the checkpoint can be changed while its agent runs. The agent ends
// when it detects that.
func (k *KeptCheckpoint) IsUnlocked() bool { return k.host != "" }

// Do calls f within the timeout, and reports a slow API server.
func (k *KeptCheckpoint) Do(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := k.within(ctx)
	defer cancel()
	if k.host != "" {
		slow := time.AfterFunc(quietWait, func() {
			fmt.Fprintf(k.stderr, "kubecdc: waiting for the API server %s\n", k.host)
		})
		defer slow.Stop()
	}
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", k, context.Cause(ctx))
	}
	return err
}

func (k *KeptCheckpoint) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, k.timeout, fmt.Errorf("no answer within %v", k.timeout))
}

// askUID returns the uid of the cluster. The default location of a checkpoint depends on it.
func (k *KeptCheckpoint) askUID(ctx context.Context, c *Cluster) (string, error) {
	ctx, cancel := k.within(ctx)
	defer cancel()
	set, err := newIdleInformers(k.Config, c.REST)
	if err != nil {
		return "", ConfigError{err}
	}
	uid, err := c.UID(ctx, set, slog.New(terminal.NewHandler(terminal.Detect(k.stderr, os.Getenv), slog.LevelWarn)))
	if err != nil && ctx.Err() != nil {
		return "",
			fmt.Errorf(
				"the location of the checkpoint depends on the cluster, which the API server %s (%s) did not identify: %w; "+
					"with --data-dir, or a configuration that sets the location, the command does not need it",
				c.Host(),
				c.From, context.Cause(ctx))
	}
	return uid, err
}
