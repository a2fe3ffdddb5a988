package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Plane is a control plane with its history.
type Plane struct {
	*controlplane.Cluster
	History    *oracle.History
	API        *API
	Kubeconfig string
	UID        string // The cluster's UID, which is that of namespace kube-system.

	dir  string
	stop func()
}

const (
	// versionEnv names the variable with the minor version of Kubernetes that control planes
	// without one of their own have: "1.33". Empty: that of test/cluster.
	versionEnv = "KUBECDC_KUBERNETES"
	// gatesEnv names the variable with feature gates of all control planes: "WatchList=false,…".
	gatesEnv = "KUBECDC_KUBERNETES_GATES"
	// kineEnv names the variable with the file of kine, which replaces etcd. Empty: etcd.
	kineEnv = "KUBECDC_KINE"
	// uncachedEnv names the variable that turns the watch caches of all control planes off: "true".
	uncachedEnv = "KUBECDC_KUBERNETES_UNCACHED"
)

// fromEnvironment adds what make test-versions asks for. Options of the test itself are kept.
func fromEnvironment(opts *controlplane.Options) error {
	opts.Version = cmp.Or(opts.Version, os.Getenv(versionEnv))
	opts.Kine = os.Getenv(kineEnv)
	if os.Getenv(uncachedEnv) != "" {
		opts.NoWatchCache, opts.Uncached = true, nil
	}
	gates := os.Getenv(gatesEnv)
	if gates == "" {
		return nil
	}
	all := map[string]bool{}
	for gate := range strings.SplitSeq(gates, ",") {
		name, value, _ := strings.Cut(gate, "=")
		isOn, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%s=%s: want NAME=true or NAME=false, separated by commas", gatesEnv, gates)
		}
		all[name] = isOn
	}
	maps.Copy(all, opts.FeatureGates)
	opts.FeatureGates = all
	return nil
}

// newPlane starts a control plane with the resource widgets. It stores JSON, and does not compact
// etcd by default.
func newPlane(ctx context.Context, opts controlplane.Options) (_ *Plane, err error) {
	if err := fromEnvironment(&opts); err != nil {
		return nil, err
	}
	if opts.CompactionInterval == 0 {
		opts.CompactionInterval = -1
	}
	// For the history, which reads JSON. Custom resources are always stored as JSON.
	opts.APIServerArgs = append(opts.APIServerArgs, "--storage-media-type=application/json")
	cluster, err := controlplane.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	p := &Plane{Cluster: cluster, stop: cluster.Stop}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	p.History, err = oracle.OpenHistory(cluster.EtcdEndpoint())
	if err != nil {
		return nil, err
	}
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.History.Run(follow) })
	p.stop = func() {
		cancel()
		wg.Wait()
		p.History.Close()
		cluster.Stop()
		_ = os.RemoveAll(p.dir)
	}
	p.dir, err = os.MkdirTemp("", "kubecdc-e2e-")
	if err != nil {
		return nil, err
	}
	p.Kubeconfig = filepath.Join(p.dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(p.Kubeconfig, controlplane.Admin); err != nil {
		return nil, err
	}
	p.API, err = NewAPI(cluster.Config(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	// The API server creates this namespace shortly after it is ready.
	err = wait.For(ctx, time.Minute, func() error {
		raw, err := p.API.Get(ctx, "/api/v1/namespaces/kube-system")
		if err != nil {
			return err
		}
		var ns struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &ns); err != nil {
			return err
		}
		p.UID = ns.Metadata.UID
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("namespace kube-system: %w", err)
	}
	return p, p.NewWidgets(ctx)
}

// StartPlane starts a control plane for one test.
func StartPlane(t testing.TB, opts controlplane.Options) *Plane {
	t.Helper()
	p, err := newPlane(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

// sharedCluster is a control plane that tests share. Each test has its own namespaces.
type sharedCluster struct {
	opts controlplane.Options

	mu    sync.Mutex
	plane *Plane
	err   error
}

var (
	// shared is for tests without special options.
	shared sharedCluster
	// bare has no controllers that write objects.
	bare = sharedCluster{opts: controlplane.Options{NoControllerManager: true}}
)

// SharedPlane returns the control plane that tests share, and starts it for the first of them.
func SharedPlane(t testing.TB) *Plane {
	t.Helper()
	return shared.get(t)
}

// BarePlane returns the control plane without a controller manager that tests share, and starts it
// for the first of them.
func BarePlane(t testing.TB) *Plane {
	t.Helper()
	return bare.get(t)
}

func (s *sharedCluster) get(t testing.TB) *Plane {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane == nil && s.err == nil {
		s.plane, s.err = newPlane(context.WithoutCancel(t.Context()), s.opts)
	}
	if s.err != nil {
		t.Fatalf("shared control plane: %v", s.err)
	}
	return s.plane
}

// StopShared stops the shared control planes. TestMain must call it after the tests.
func StopShared() {
	for _, s := range []*sharedCluster{&shared, &bare} {
		s.mu.Lock()
		if s.plane != nil {
			s.plane.stop()
		}
		s.mu.Unlock()
	}
}

// Reader returns a reader for the records of an agent that observes this control plane.
func (p *Plane) Reader() *oracle.Reader {
	return &oracle.Reader{Cluster: ClusterName, ClusterUID: p.UID, Needles: oracle.NewNeedles(SecretMark)}
}

// Compact compacts etcd, or kine, as [controlplane.Cluster.Compact] does.
func (p *Plane) Compact(ctx context.Context, rev int64) error {
	if os.Getenv(kineEnv) == "" {
		return p.Cluster.Compact(ctx, rev)
	}
	if rev == 0 {
		now, err := p.History.Revision(ctx)
		if err != nil {
			return err
		}
		rev = int64(now)
	}
	if _, err := p.History.Client.Compact(ctx, rev); err != nil {
		return fmt.Errorf("compact kine at %d: %w", rev, err)
	}
	return nil
}

// Now returns etcd's revision at the time of the call, after the history has reached it.
func (p *Plane) Now(t testing.TB) uint64 {
	t.Helper()
	rev, err := p.History.CatchUp(t.Context())
	if err != nil {
		t.Fatal(errors.Join(errors.New("history"), err))
	}
	return rev
}
