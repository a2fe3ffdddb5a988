package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// readyTimeout bounds the wait for one component if the caller's context has no deadline. Observed:
// 1-5 s; the rest is for a machine that compiles at the same time.
const readyTimeout = 2 * time.Minute

// Options are what differs from a control plane with the upstream defaults. The zero value is one
// API server with a controller manager in a temporary directory.
type Options struct {
	// Dir holds data, keys and logs and is kept by Stop. Empty: a new temporary directory, removed
	// by Stop. A directory of an earlier run keeps its objects; keys, tokens and ports are new.
	Dir string

	// APIServers is the number of API servers that share the etcd; 0 is 1. On one host they also
	// share one identity Lease in kube-system, which Kubernetes derives from the host's name.
	APIServers int

	// NoControllerManager omits the controller manager. A Deployment then creates no ReplicaSet,
	// owned objects are not collected, a Namespace never finishes terminating, and the aggregated
	// roles (view, edit, admin) are empty. The ServiceAccount admission plugin is off in that case,
	// because no account that it requires would be created.
	NoControllerManager bool

	// Users are users in addition to Admin and Restricted.
	Users []User

	// FeatureGates are set on the API servers and the controller manager.
	FeatureGates map[string]bool

	// CompactionInterval is how often the API server compacts etcd, which limits how far back a
	// LIST or WATCH may start. 0: the upstream default, 5 min. Negative: never; only
	// Cluster.Compact compacts then.
	CompactionInterval time.Duration

	// NoWatchCache turns the watch cache off for all resources, Uncached for some: "configmaps",
	// "deployments.apps". The size cannot be set: since Kubernetes 1.19 the cache sizes itself and
	// takes only a 0 from --watch-cache-sizes.
	NoWatchCache bool
	Uncached     []string

	// MaxRequestsInflight limits how many requests an API server executes at a time. Two thirds are
	// for requests that only read. 0: 6000, ten times the upstream default, so that writers in
	// tests do not get a 429.
	MaxRequestsInflight int

	// EtcdFor returns the address of etcd for API server i. A test can return a proxy that it can
	// cut, so that one server lags behind the others. EtcdFor is called once for each server,
	// before its first start. If it is nil or returns "", the server uses endpoint.
	EtcdFor func(i int, endpoint string) (string, error)

	// Kine is the file of kine, which then replaces etcd; "": etcd. Its database is SQLite. It has
	// no JSON API: Revision and Compact fail.
	Kine string

	// Fsync protects etcd against a crash of the machine, and slows writers. Killing etcd loses
	// nothing either way.
	Fsync bool

	// UpstreamGC leaves Go's garbage collector as upstream has it, for tests that measure the
	// memory of a component.
	UpstreamGC bool

	// EtcdArgs, APIServerArgs and ControllerManagerArgs come last on the command lines and override
	// other flags.
	EtcdArgs              []string
	APIServerArgs         []string
	ControllerManagerArgs []string

	// Binaries are the programs to run. Nil: those in the directory KUBEBUILDER_ASSETS or, if that
	// is not set, that of Build.
	Binaries *Binaries

	// Version is the minor version of Kubernetes to build: see BuildVersion. Binaries override it.
	Version string

	// Output receives the progress of Build, if it has to build. Nil: os.Stderr.
	Output io.Writer
}

// Cluster is a running control plane. Its methods are safe for concurrent use, except that one
// component must not be started and stopped at the same time.
type Cluster struct {
	opts    Options
	bin     *Binaries
	dir     string
	tempDir bool
	pki     *pki
	users   []userToken

	etcd              *component
	etcdURL           string
	etcdName          string
	apiServers        []*apiServer
	controllerManager *component // nil without one

	stop sync.Once
}

// Start builds the binary if necessary and starts a control plane. It returns when every API server
// answers /readyz with 200 and the default namespace exists. With a controller manager, it also
// waits for the default ServiceAccount, which Pods need. ctx bounds the start only; the control
// plane runs until Stop.
//
// An error includes the last log lines of the component that failed. Nothing is left running then.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	if opts.APIServers == 0 {
		opts.APIServers = 1
	}
	if opts.MaxRequestsInflight == 0 {
		opts.MaxRequestsInflight = 6000
	}
	if opts.Output == nil {
		opts.Output = os.Stderr
	}
	bin, err := findBinaries(ctx, opts)
	if err != nil {
		return nil, err
	}

	c := &Cluster{opts: opts, bin: bin, dir: opts.Dir}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.dir == "" {
		c.dir, err = os.MkdirTemp("", "kubecdc-controlplane-")
		if err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		c.tempDir = true
	}
	c.dir, err = filepath.Abs(c.dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	c.pki, err = writePKI(filepath.Join(c.dir, "pki"))
	if err != nil {
		return nil, err
	}
	c.users, err = writeTokens(c.tokenFile(), opts.Users)
	if err != nil {
		return nil, err
	}

	if err := c.startNewEtcd(ctx, bin); err != nil {
		return nil, err
	}
	// One after the other: only the first finds an empty etcd. Two that fill it with the RBAC
	// defaults at the same time conflict, and need more time than one.
	for i := range opts.APIServers {
		if err := c.startNewAPIServer(ctx, bin, i); err != nil {
			return nil, err
		}
	}
	if !opts.NoControllerManager {
		if err := c.newControllerManager(bin); err != nil {
			return nil, err
		}
		if err := c.StartControllerManager(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Stop ends all processes and removes a temporary data directory. Calling it again does nothing.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		var all []*component
		if c.controllerManager != nil {
			all = append(all, c.controllerManager)
		}
		for _, s := range c.apiServers {
			all = append(all, s.component)
		}
		if c.etcd != nil {
			all = append(all, c.etcd)
		}
		// Killed without a shutdown: etcd writes each entry out before it acknowledges it, and
		// nothing else has state.
		for _, comp := range all {
			comp.kill()
		}
		if c.tempDir {
			_ = os.RemoveAll(c.dir) // A leftover in the temporary directory is not worth a failed test.
		}
	})
}

// Dir returns the data directory; the logs of the components are in it.
func (c *Cluster) Dir() string { return c.dir }

// ControllerManagerPID returns its process ID, or 0 if it does not run.
func (c *Cluster) ControllerManagerPID() int {
	if c.controllerManager == nil {
		return 0
	}
	return c.controllerManager.pid()
}

// errNoControllerManager is the error for a start of a controller manager that Options exclude.
var errNoControllerManager = errors.New("controlplane: started without a controller manager")
