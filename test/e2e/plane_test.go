package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// plane is a control plane with its history.
type plane struct {
	*controlplane.Cluster
	history    *history
	api        *api
	kubeconfig string
	uid        string // Of the cluster, which is that of namespace kube-system.

	dir  string
	stop func()
}

// newPlane starts a control plane that stores JSON and forgets nothing, with the resource widgets.
func newPlane(ctx context.Context, opts controlplane.Options) (_ *plane, err error) {
	if opts.CompactionInterval == 0 {
		opts.CompactionInterval = -1
	}
	// So that the history can be read. Custom resources are always stored as JSON.
	opts.APIServerArgs = append(opts.APIServerArgs, "--storage-media-type=application/json")
	cluster, err := controlplane.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	p := &plane{Cluster: cluster, stop: cluster.Stop}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.history, err = openHistory(cluster.EtcdEndpoint()); err != nil {
		return nil, err
	}
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.history.run(follow) })
	p.stop = func() {
		cancel()
		wg.Wait()
		_ = p.history.client.Close() // Nothing is lost by it.
		cluster.Stop()
		_ = os.RemoveAll(p.dir)
	}
	if p.dir, err = os.MkdirTemp("", "kubecdc-e2e-"); err != nil {
		return nil, err
	}
	p.kubeconfig = filepath.Join(p.dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(p.kubeconfig, controlplane.Admin); err != nil {
		return nil, err
	}
	if p.api, err = newAPI(cluster.Config(controlplane.Admin)); err != nil {
		return nil, err
	}
	// Made by the API server itself, a little after it is ready.
	err = await(ctx, time.Minute, func() error {
		raw, err := p.api.get(ctx, "/api/v1/namespaces/kube-system")
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
		p.uid = ns.Metadata.UID
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("namespace kube-system: %w", err)
	}
	return p, p.newWidgets(ctx)
}

// startPlane starts a control plane for one test.
func startPlane(t testing.TB, opts controlplane.Options) *plane {
	t.Helper()
	p, err := newPlane(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

// sharedCluster is a control plane of several tests. Each has namespaces of its own there.
type sharedCluster struct {
	opts controlplane.Options

	mu    sync.Mutex
	plane *plane
	err   error
}

var (
	// shared is for tests that need nothing special.
	shared sharedCluster
	// bare is without others who write.
	bare = sharedCluster{opts: controlplane.Options{NoControllerManager: true}}
)

func sharedPlane(t testing.TB) *plane {
	t.Helper()
	return shared.get(t)
}

func barePlane(t testing.TB) *plane {
	t.Helper()
	return bare.get(t)
}

func (s *sharedCluster) get(t testing.TB) *plane {
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

func stopShared() {
	for _, s := range []*sharedCluster{&shared, &bare} {
		s.mu.Lock()
		if s.plane != nil {
			s.plane.stop()
		}
		s.mu.Unlock()
	}
}

// reader is for the records of an agent that observes this control plane.
func (p *plane) reader() *reader {
	return &reader{Cluster: clusterName, ClusterUID: p.uid, Needles: newNeedles(secretMark)}
}

// now is the revision up to which the history has been read, which is etcd's at the time of the call.
func (p *plane) now(t testing.TB) uint64 {
	t.Helper()
	rev, err := p.history.catchUp(t.Context())
	if err != nil {
		t.Fatal(errors.Join(errors.New("history"), err))
	}
	return rev
}
