package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// firstServiceIP is the address of the Service "kubernetes" in serviceIPs.
const (
	serviceIPs     = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1"
)

// stopGrace is how long a component may take to end when asked before it is killed.
const stopGrace = 30 * time.Second

type apiServer struct {
	*component
	url  string
	args func(extra []string) []string // The whole command line, with extra in place of Options.APIServerArgs.
}

func (c *Cluster) tokenFile() string { return filepath.Join(c.dir, "tokens.csv") }

func (c *Cluster) startNewAPIServer(ctx context.Context, bin *Binaries, i int) error {
	s := &apiServer{}
	c.apiServers = append(c.apiServers, s)
	etcd := ""
	if c.opts.EtcdFor != nil {
		var err error
		etcd, err = c.opts.EtcdFor(i, c.etcdURL)
		if err != nil {
			return fmt.Errorf("etcd for API server %d: %w", i, err)
		}
	}
	etcd = cmp.Or(etcd, c.etcdURL)
	return onFreePort(ctx, func(port int) error {
		s.url = fmt.Sprintf("https://127.0.0.1:%d", port)
		s.args = func(extra []string) []string {
			return bin.argv(apiServerBinary, append(c.apiServerFlags(port, etcd), extra...))
		}
		s.component = c.newComponent(fmt.Sprintf("kube-apiserver-%d", i), s.args(c.opts.APIServerArgs))
		return c.StartAPIServer(ctx, i)
	})
}

func (c *Cluster) apiServerFlags(port int, etcd string) []string {
	o := c.opts
	flags := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + c.pki.servingCert,
		"--tls-private-key-file=" + c.pki.servingKey,
		"--client-ca-file=" + c.pki.caCert,
		"--token-auth-file=" + c.tokenFile(),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki.serviceAccountKey,
		"--service-account-signing-key-file=" + c.pki.serviceAccountKey,
		"--service-cluster-ip-range=" + serviceIPs,
		// Endpoints may not hold a loopback address, so the reconciler for those of the Service
		// "kubernetes" would only fail.
		"--endpoint-reconciler-type=none",
		// Without it, a server that shuts down waits a minute for its watchers to leave, and they
		// do not.
		"--shutdown-watch-termination-grace-period=5s",
		fmt.Sprintf("--max-requests-inflight=%d", o.MaxRequestsInflight*2/3),
		fmt.Sprintf("--max-mutating-requests-inflight=%d", o.MaxRequestsInflight-o.MaxRequestsInflight*2/3),
	}
	if o.NoControllerManager {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	switch {
	case o.CompactionInterval > 0:
		flags = append(flags, "--etcd-compaction-interval="+o.CompactionInterval.String())
	case o.CompactionInterval < 0:
		// Not 0, which means never upstream: an API server without a compactor ignores the
		// compactions of others, too. It would serve Exact LISTs from its cache for revisions that
		// etcd has compacted.
		flags = append(flags, "--etcd-compaction-interval=8760h")
	}
	if o.NoWatchCache {
		flags = append(flags, "--watch-cache=false")
	}
	if len(o.Uncached) > 0 {
		flags = append(flags, "--watch-cache-sizes="+strings.Join(o.Uncached, "#0,")+"#0")
	}
	return append(flags, featureGates(o.FeatureGates)...)
}

func featureGates(gates map[string]bool) []string {
	if len(gates) == 0 {
		return nil
	}
	var list []string
	for name, on := range gates {
		list = append(list, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(list)
	return []string{"--feature-gates=" + strings.Join(list, ",")}
}

// APIServers returns the number of API servers, running or not; they are counted from 0.
func (c *Cluster) APIServers() int { return len(c.apiServers) }

// APIServerURL returns the URL, which stays the same over restarts.
func (c *Cluster) APIServerURL(i int) string { return c.apiServers[i].url }

// APIServerPID returns the process ID, or 0 if the server does not run.
func (c *Cluster) APIServerPID(i int) int { return c.apiServers[i].pid() }

// StartAPIServer starts a stopped server on the same port, and returns when it is ready. args, if
// any, replace Options.APIServerArgs for this server from now on.
func (c *Cluster) StartAPIServer(ctx context.Context, i int, args ...string) error {
	s := c.apiServers[i]
	if len(args) > 0 {
		s.argv = s.args(args)
	}
	if err := s.start(); err != nil {
		return err
	}
	err := c.waitAPIServer(ctx, s)
	if err != nil {
		s.kill()
	}
	return err
}

// StopAPIServer shuts the server down, as an upgrade does: requests are finished and watches
// closed, which takes one to three seconds. It returns when the process is gone; the process is
// killed after 30 s.
func (c *Cluster) StopAPIServer(i int) { c.apiServers[i].terminate(stopGrace) }

// KillAPIServer kills the process, like a crash.
func (c *Cluster) KillAPIServer(i int) { c.apiServers[i].kill() }

// RestartAPIServer is StopAPIServer and StartAPIServer. It loses the watch cache, from which a
// WATCH can resume, but nothing in etcd.
func (c *Cluster) RestartAPIServer(ctx context.Context, i int, args ...string) error {
	c.StopAPIServer(i)
	return c.StartAPIServer(ctx, i, args...)
}

// waitAPIServer waits until the server is ready and has created the default namespace, which it
// does after it first became ready.
func (c *Cluster) waitAPIServer(ctx context.Context, s *apiServer) error {
	return s.waitReady(ctx, func(ctx context.Context) error {
		return cmp.Or(
			c.get(ctx, s.url+"/readyz"),
			c.get(ctx, s.url+"/api/v1/namespaces/default"),
		)
	})
}

func (c *Cluster) get(ctx context.Context, url string) error {
	return c.do(ctx, http.MethodGet, url, c.token(Admin), nil, nil)
}

func (c *Cluster) newControllerManager(bin *Binaries) error {
	// A separate file: the user's kubeconfig may be written with any name and user.
	kubeconfig := filepath.Join(c.dir, "kube-controller-manager.kubeconfig")
	if err := c.WriteKubeconfig(kubeconfig, controllerManagerUser); err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0", // Its metrics are not used; one port less to find.
		"--service-account-private-key-file=" + c.pki.serviceAccountKey,
		"--root-ca-file=" + c.pki.caCert,
		"--cluster-signing-cert-file=" + c.pki.caCert,
		"--cluster-signing-key-file=" + c.pki.caKey,
		"--service-cluster-ip-range=" + serviceIPs,
		// With the default of 20 requests per second, a rollout of a few hundred Pods would take
		// too long.
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
	args = append(args, featureGates(c.opts.FeatureGates)...)
	args = append(args, c.opts.ControllerManagerArgs...)
	c.controllerManager = c.newComponent("kube-controller-manager", bin.argv(controllerManagerBinary, args))
	return nil
}

// StartControllerManager starts or restarts the controller manager, and returns when Pods can be
// created in the default namespace. API server 0 must be up.
func (c *Cluster) StartControllerManager(ctx context.Context) error {
	if c.controllerManager == nil {
		return errNoControllerManager
	}
	if err := c.controllerManager.start(); err != nil {
		return err
	}
	err := c.controllerManager.waitReady(ctx, func(ctx context.Context) error {
		return c.get(ctx, c.apiServers[0].url+"/api/v1/namespaces/default/serviceaccounts/default")
	})
	if err != nil {
		c.controllerManager.kill()
	}
	return err
}

// StopControllerManager stops the controller manager. Then only the test acts on the cluster.
func (c *Cluster) StopControllerManager() {
	if c.controllerManager != nil {
		c.controllerManager.terminate(stopGrace)
	}
}

func (c *Cluster) token(user string) string {
	for _, u := range c.users {
		if u.name == user {
			return u.token
		}
	}
	panic(fmt.Sprintf("controlplane: unknown user %q: not in Options.Users", user))
}
