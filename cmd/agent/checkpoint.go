package main

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

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/localbus"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// lastSave is how long the last save of a checkpoint may take, whatever is left of the grace period: what is drained is
// worth remembering.
const lastSave = 5 * time.Second

// place is where a checkpoint is kept, in a file or in a ConfigMap; in neither: nowhere.
type place struct {
	file      string
	configMap *config.CheckpointConfigMap
}

// remembers tells if there is a place.
func remembers(cfg *config.Config) bool {
	// Of what is written to standard output nobody knows what becomes: the default is to remember nothing of it.
	return cfg.Checkpoint != config.Checkpoint{} || !cfg.Bus.Stdout()
}

// configMapOf is the ConfigMap with the checkpoint of the agent that is run with f and cfg, nil: it is not in one.
// namespace is that of the pod that the agent is, "": it is none.
func configMapOf(f *runFlags, cfg *config.Config, namespace string) *config.CheckpointConfigMap {
	switch {
	case cfg.Checkpoint.ConfigMap != nil:
		return cfg.Checkpoint.ConfigMap
	case cfg.Checkpoint.File != nil, !remembers(cfg), namespace == "":
		return nil
	case f.embedded(): // beside the records, also in a pod: without them it would be wrong
		return nil
	}
	return &config.CheckpointConfigMap{Namespace: namespace, Name: config.DefaultCheckpoint}
}

// placeOf is where the agent that is run with f and cfg keeps its checkpoint. Of the cluster, only what decides is asked.
func placeOf(f *runFlags, cfg *config.Config, cluster func() (*cluster, error), uid func() (string, error)) (place, error) {
	switch {
	case !remembers(cfg):
		return place{}, nil
	case cfg.Checkpoint.File != nil:
		return place{file: cfg.Checkpoint.File.Path}, nil
	case cfg.Checkpoint.ConfigMap != nil:
		return place{configMap: cfg.Checkpoint.ConfigMap}, nil
	case f.embedded():
		dir, err := dataDirectory(f.dataDir, uid)
		return place{file: filepath.Join(dir, "checkpoint.json")}, err
	}
	c, err := cluster()
	if err != nil {
		return place{}, err
	}
	if m := configMapOf(f, cfg, c.namespace); m != nil {
		return place{configMap: m}, nil
	}
	root, err := localbus.DefaultRoot(os.Getenv)
	if err != nil {
		return place{}, errors.New("no place for the checkpoint: neither $XDG_DATA_HOME nor $HOME is set, and this is no pod of the cluster: " +
			"name one in the configuration (checkpoint)")
	}
	id, err := uid()
	if err == nil {
		err = namesDirectory(id)
	}
	_, settings := cfg.Bus.Chosen()
	sum := sha256.Sum256([]byte(strings.Join(settings.Summary().Servers, ",") + "\n" + busIdentity(f, cfg) + "\n" + cfg.Cluster))
	return place{file: filepath.Join(root, "checkpoints", fmt.Sprintf("%s-%x.json", id, sum[:6]))}, err
}

// store opens the place, which must be one.
func (p *place) store(cluster func() (*cluster, error)) (checkpoint.Store, error) {
	if p.configMap == nil {
		return checkpoint.OpenFile(p.file), nil
	}
	c, err := cluster()
	if err != nil {
		return nil, err
	}
	return checkpoint.NewConfigMap(c.rest, p.configMap.Namespace, p.configMap.Name)
}

// ignored is what must never be captured: each save of the checkpoint would be a change to be saved.
func ignored(f *runFlags, cfg *config.Config, c *cluster) []informers.Name {
	m := configMapOf(f, cfg, c.namespace)
	if m == nil {
		return nil
	}
	return []informers.Name{{Resource: "configmaps", Namespace: m.Namespace, Name: m.Name}}
}

// busIdentity tells one destination of records from another. The embedded JetStream is that of its directory, whichever port
// it gets. Servers are not part of it: they get other names, and one more, and have the same stream. A stream that has heard
// nothing of a resource gets a snapshot of it anyway. Of Kafka the same holds for brokers. If another stream or another Kafka cluster
// answers under the same name, publish.Logs notices. An HTTP receiver is its URL, without what may be a secret in it.
func busIdentity(f *runFlags, cfg *config.Config) string {
	if f.embedded() {
		return "the embedded JetStream"
	}
	_, settings := cfg.Bus.Chosen()
	return settings.Summary().Identity
}

// memory is a keeper that is there when the informers run, but not when they are made.
type memory struct{ *checkpoint.Keeper }

// newKeeper makes the keeper of the checkpoint, and reads nothing. reg may be nil.
func (c *capture) newKeeper(id *identity, reg prometheus.Registerer) (checkpoint.Store, *checkpoint.Keeper, error) {
	kept, err := placeOf(c.flags, c.cfg, c.known, func() (string, error) { return id.uid, nil })
	if err != nil {
		return nil, nil, err
	}
	store, err := kept.store(c.known)
	if err != nil {
		return nil, nil, err
	}
	whose := checkpoint.Identity{ClusterUID: id.uid, Cluster: id.name, Bus: busIdentity(c.flags, c.cfg)}
	return store, checkpoint.NewKeeper(store, whose, c.log, reg), nil
}

// resumable is the error with which remember would refuse the checkpoint that is there now. It changes nothing.
func (c *capture) resumable(ctx context.Context, id *identity) error {
	if c.memory == nil {
		return nil
	}
	_, keeper, err := c.newKeeper(id, nil) // its metrics are those of the leader
	if err != nil {
		return err
	}
	return keeper.Check(ctx)
}

// remember opens and reads the checkpoint. Where there is an election, epoch is what that gives, and the checkpoint is taken over:
// the epoch is returned that its records have from now on. The error of a ctx that has ended is its cause.
func (c *capture) remember(ctx context.Context, id *identity, epoch uint64) (uint64, error) {
	if c.memory == nil {
		c.log.Info("no checkpoint is kept, every start begins anew", "advice", "where that is not enough, name a place for it in the configuration: checkpoint")
		return epoch, nil
	}
	store, keeper, err := c.newKeeper(id, c.reg)
	if err != nil {
		return 0, err
	}
	slow := time.AfterFunc(silence, func() { c.log.Info("reading the checkpoint", "kept_in", store.String()) })
	defer slow.Stop()
	if epoch == 0 {
		err = keeper.Load(ctx)
	} else {
		epoch, err = keeper.TakeOver(ctx, epoch, c.elector.Fence().Pass)
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 0, err // says where
	}
	c.memory.Keeper = keeper
	c.report.keeper.Store(keeper)
	sayResumption(c.log, store, keeper, c.cfg.Snapshot.Mode)
	return epoch, nil
}

// rememberLogs has logs compared with those of the last run, and saved with the checkpoint. nil: the bus has none.
func (c *capture) rememberLogs(logs *publish.Logs) {
	if logs == nil {
		return
	}
	logs.OnReplaced(func(name, why string) {
		c.log.Error("the log was replaced, or has lost records: each scope gets a gap and a snapshot", "log", name, "why", why)
		c.set.Rebase()
	})
	if c.memory == nil {
		return
	}
	kept, last := c.memory.Logs()
	known := make([]publish.Log, len(kept))
	for i := range kept {
		known[i] = publish.Log(kept[i])
	}
	logs.Remember(known, last)
	c.memory.TrackLogs(func() []checkpoint.Log {
		known := logs.Known()
		kept := make([]checkpoint.Log, len(known))
		for i := range known {
			kept[i] = checkpoint.Log(known[i])
		}
		return kept
	})
}

// sayResumption logs where the checkpoint is, and what it holds.
func sayResumption(log *slog.Logger, store checkpoint.Store, keeper *checkpoint.Keeper, mode config.SnapshotMode) {
	log = log.With("kept_in", store.String())
	saved := keeper.Saved()
	if saved.IsZero() {
		log.Info("no checkpoint yet, beginning anew")
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
		log.Info("a checkpoint is there, and a snapshot is taken all the same (snapshot.mode: always)", attrs...)
	case unfinished > 0:
		log.Info("resuming, also snapshots that were not complete", append(attrs, "snapshots", unfinished)...)
	default:
		log.Info("resuming", attrs...)
	}
}

// keep saves the checkpoint until ctx ends, and then for the last time.
func keep(keeper *checkpoint.Keeper) func(context.Context) error {
	return func(ctx context.Context) error {
		err := keeper.Run(ctx)
		last, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lastSave, fmt.Errorf("it took longer than %v", lastSave))
		defer cancel()
		closed := keeper.Close(last)
		if closed != nil && err == nil && last.Err() != nil {
			closed = fmt.Errorf("%w; nothing is lost: the next start goes on from the one before, and sends again, with the same ids, "+
				"what has come since", closed)
		}
		return cmp.Or(err, closed)
	}
}
