package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/bus/localbus"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// lastSave limits the last save of a checkpoint, whatever the grace period: after a drain without a
// save, the events are sent again.
const lastSave = 5 * time.Second

// checkpointLocation is the file or ConfigMap of a checkpoint; both are empty if the agent keeps
// none.
type checkpointLocation struct {
	File      string
	ConfigMap *config.CheckpointConfigMap
}

// KeepsCheckpoint reports whether an agent keeps a checkpoint.
func KeepsCheckpoint(cfg *config.Config) bool {
	// Nothing acknowledges records on standard output, so by default there is no checkpoint for it.
	return cfg.Checkpoint != config.Checkpoint{} || !cfg.Bus.Stdout()
}

// configMapOf returns the ConfigMap of the agent's checkpoint, nil if the checkpoint is not in a
// ConfigMap. namespace is the namespace of the agent's pod, "" outside of a pod.
func configMapOf(o *Options, cfg *config.Config, namespace string) *config.CheckpointConfigMap {
	switch {
	case cfg.Checkpoint.ConfigMap != nil:
		return cfg.Checkpoint.ConfigMap
	case cfg.Checkpoint.File != nil, !KeepsCheckpoint(cfg), namespace == "":
		return nil
	case o.IsEmbedded(): // with the records, also in a pod: without them the checkpoint would be wrong
		return nil
	}
	return &config.CheckpointConfigMap{Namespace: namespace, Name: config.DefaultCheckpoint}
}

// locateCheckpoint returns the location of the agent's checkpoint. It calls cluster and uid only if
// the location depends on them.
func locateCheckpoint(
	o *Options, cfg *config.Config, cluster func() (*Cluster, error), uid func() (string, error),
) (checkpointLocation, error) {
	switch {
	case !KeepsCheckpoint(cfg):
		return checkpointLocation{}, nil
	case cfg.Checkpoint.File != nil:
		return checkpointLocation{File: cfg.Checkpoint.File.Path}, nil
	case cfg.Checkpoint.ConfigMap != nil:
		return checkpointLocation{ConfigMap: cfg.Checkpoint.ConfigMap}, nil
	case o.IsEmbedded():
		dir, err := dataDirectory(o.DataDir, uid)
		return checkpointLocation{File: filepath.Join(dir, "checkpoint.json")}, err
	}
	c, err := cluster()
	if err != nil {
		return checkpointLocation{}, err
	}
	if m := configMapOf(o, cfg, c.namespace); m != nil {
		return checkpointLocation{ConfigMap: m}, nil
	}
	root, err := localbus.DefaultRoot(os.Getenv)
	if err != nil {
		return checkpointLocation{},
			errors.New(
				"no location for the checkpoint: neither $XDG_DATA_HOME nor $HOME is set, and the agent is not in a pod of the cluster: " +
					"name one in the configuration (checkpoint)")
	}
	id, err := uid()
	if err == nil {
		err = checkDirectoryName(id)
	}
	_, settings := cfg.Bus.Chosen()
	sum := sha256.Sum256(
		[]byte(strings.Join(settings.Summary().Servers, ",") + "\n" + busIdentity(o, cfg) + "\n" + cfg.Cluster))
	return checkpointLocation{File: filepath.Join(root, "checkpoints", fmt.Sprintf("%s-%x.json", id, sum[:6]))}, err
}

// open returns the store of the location, which must not be empty.
func (l *checkpointLocation) open(cluster func() (*Cluster, error)) (checkpoint.Store, error) {
	if l.ConfigMap == nil {
		return checkpoint.OpenFile(l.File), nil
	}
	c, err := cluster()
	if err != nil {
		return nil, err
	}
	return checkpoint.NewConfigMap(c.REST, l.ConfigMap.Namespace, l.ConfigMap.Name)
}

// ignored returns the objects that must not be captured: each save of the checkpoint would cause
// another change to save.
func ignored(o *Options, cfg *config.Config, c *Cluster) []informers.Name {
	m := configMapOf(o, cfg, c.namespace)
	if m == nil {
		return nil
	}
	return []informers.Name{{Resource: "configmaps", Namespace: m.Namespace, Name: m.Name}}
}

// busIdentity identifies the destination of records. Servers and brokers are not part of it: they
// may be renamed or added while the stream stays the same. publish.Logs detects another stream or
// Kafka cluster of the same name. The identity of an HTTP receiver is its URL without possible
// secrets.
func busIdentity(o *Options, cfg *config.Config) string {
	if o.IsEmbedded() {
		return "the embedded JetStream"
	}
	_, settings := cfg.Bus.Chosen()
	return settings.Summary().Identity
}

// deferredKeeper gets its Keeper after the informers are created and before they run.
type deferredKeeper struct{ *checkpoint.Keeper }

// newKeeper returns the keeper of the checkpoint. It does not read the checkpoint. reg may be nil.
func (a *agent) newKeeper(id *identity, reg prometheus.Registerer) (checkpoint.Store, *checkpoint.Keeper, error) {
	location, err := a.locateCheckpoint(id)
	if err != nil {
		return nil, nil, err
	}
	store, err := location.open(a.ownCluster)
	if err != nil {
		return nil, nil, err
	}
	owner := checkpoint.Identity{ClusterUID: id.uid, Cluster: id.name, Bus: busIdentity(a.options, a.cfg)}
	return store, checkpoint.NewKeeper(store, owner, a.log, reg), nil
}

// locateCheckpoint returns the location of the agent's own checkpoint.
func (a *agent) locateCheckpoint(id *identity) (checkpointLocation, error) {
	return locateCheckpoint(a.options, a.cfg, a.ownCluster, func() (string, error) { return id.uid, nil })
}

func (a *agent) ownCluster() (*Cluster, error) { return a.cluster, nil }

// checkCheckpoint returns the error with which loadCheckpoint would reject the current checkpoint.
// It changes nothing.
func (a *agent) checkCheckpoint(ctx context.Context, id *identity) error {
	if a.keeper == nil {
		return nil
	}
	_, keeper, err := a.newKeeper(id, nil) // without metrics: those are registered when it leads
	if err != nil {
		return err
	}
	return keeper.Check(ctx)
}

// loadCheckpoint opens and reads the checkpoint. epoch is the epoch of the election, 0 without one.
// With an election it takes the checkpoint over, and returns the epoch for all later records. If
// ctx has ended, the error is its cause.
func (a *agent) loadCheckpoint(ctx context.Context, id *identity, epoch uint64) (uint64, error) {
	if a.keeper == nil {
		a.log.Info("no checkpoint is kept: each start begins from scratch", "advice",
			"to resume after a restart, set checkpoint in the configuration")
		return epoch, nil
	}
	store, keeper, err := a.newKeeper(id, a.reg)
	if err != nil {
		return 0, err
	}
	slow := time.AfterFunc(quietWait, func() { a.log.Info("reading the checkpoint", "kept_in", store.String()) })
	defer slow.Stop()
	if epoch == 0 {
		err = keeper.Load(ctx)
	} else {
		epoch, err = keeper.TakeOver(ctx, epoch, a.elector.Fence().Pass)
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 0, err // names the location
	}
	a.keeper.Keeper = keeper
	a.beginTime(keeper)
	a.report.keeper.Store(keeper)
	logResumption(a.log, store, keeper, a.cfg.Snapshot.Mode)
	return epoch, nil
}

// beginTime makes the times of this run begin no earlier than the last one of the run before it.
func (a *agent) beginTime(keeper *checkpoint.Keeper) {
	last := keeper.Time()
	a.clock.Begin(last)
	keeper.TrackTime(a.clock.Now)
	if ahead := a.clock.Ahead(); ahead >= time.Second {
		a.log.Warn(
			"the times of the previous run are ahead of the wall clock: those of this run stand still until it has passed them",
			"last_time", last, "ahead", ahead, "advice", "check that the clocks of the machines are synchronized")
	}
}

// trackLogs compares the logs of the bus with those of the last run, and saves them with the
// checkpoint. logs is nil if the bus has none.
func (a *agent) trackLogs(logs *publish.Logs) {
	if logs == nil {
		return
	}
	logs.OnReplaced(func(name, why string) {
		a.log.Error("the log was replaced, or has lost records: each scope gets a gap and a snapshot", "log", name,
			"why", why)
		a.informers.Rebase()
	})
	if a.keeper == nil {
		return
	}
	kept, last := a.keeper.Logs()
	known := make([]publish.Log, len(kept))
	for i := range kept {
		known[i] = publish.Log(kept[i])
	}
	logs.Restore(known, last)
	a.keeper.TrackLogs(func() []checkpoint.Log {
		known := logs.Known()
		kept := make([]checkpoint.Log, len(known))
		for i := range known {
			kept[i] = checkpoint.Log(known[i])
		}
		return kept
	})
}

// logResumption logs the location and the content of the checkpoint.
func logResumption(log *slog.Logger, store checkpoint.Store, keeper *checkpoint.Keeper, mode config.SnapshotMode) {
	log = log.With("kept_in", store.String())
	saved := keeper.Saved()
	if saved.IsZero() {
		log.Info("no checkpoint yet, starting from scratch")
		return
	}
	unfinished := 0
	for _, s := range keeper.Scopes() {
		if s.Snapshot != nil {
			unfinished++
		}
	}
	attrs := []any{"scopes", len(keeper.Scopes()), "saved", time.Since(saved).Round(time.Second).String() + " ago"}
	switch {
	case mode == config.SnapshotAlways:
		log.Info("found a checkpoint, but taking a snapshot anyway (snapshot.mode: always)", attrs...)
	case unfinished > 0:
		log.Info("resuming, including incomplete snapshots", append(attrs, "snapshots", unfinished)...)
	default:
		log.Info("resuming", attrs...)
	}
}

// saveCheckpoint saves the checkpoint until ctx ends, and then once more.
func saveCheckpoint(keeper *checkpoint.Keeper) func(context.Context) error {
	return func(ctx context.Context) error {
		err := keeper.Run(ctx)
		last, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lastSave,
			fmt.Errorf("it took longer than %v", lastSave))
		defer cancel()
		closed := keeper.Close(last)
		if closed != nil && err == nil && last.Err() != nil {
			closed = fmt.Errorf(
				"%w; nothing is lost: the next start resumes from the previous checkpoint, and sends later events again with the same ids",
				closed)
		}
		return cmp.Or(err, closed)
	}
}
