package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
)

func (c *Cluster) startNewEtcd(ctx context.Context, bin *Binaries) error {
	if c.opts.Kine != "" {
		return c.startNewKine(ctx)
	}
	c.etcdName = rand.Text()
	return onFreePort(ctx, func(port int) error {
		c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", port)
		args := []string{
			"--name=" + c.etcdName,
			"--data-dir=" + c.EtcdDataDir(),
			"--listen-client-urls=" + c.etcdURL,
			"--advertise-client-urls=" + c.etcdURL,
			// A member must listen for peers, though there are none: any port will do.
			"--listen-peer-urls=http://127.0.0.1:0",
			// Space for benchmarks that write faster than they compact; at the default of 2 GiB,
			// etcd becomes read-only.
			"--quota-backend-bytes=8589934592",
		}
		if !c.opts.Fsync {
			args = append(args, "--unsafe-no-fsync")
		}
		c.etcd = c.newComponent("etcd", bin.argv(etcdBinary, append(args, c.opts.EtcdArgs...)))
		return c.StartEtcd(ctx)
	})
}

// startNewKine starts kine in the place of etcd.
func (c *Cluster) startNewKine(ctx context.Context) error {
	return onFreePort(ctx, func(port int) error {
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		c.etcdURL = "http://" + addr
		c.etcd = c.newComponent("kine", []string{
			c.opts.Kine,
			"--listen-address=" + addr,
			"--endpoint=sqlite://" + filepath.Join(c.dir, "kine.db") +
				"?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate",
			"--metrics-bind-address=0",
			"--compact-min-retain=0", // a test compacts up to the present
		})
		return c.StartEtcd(ctx)
	})
}

// EtcdEndpoint is the URL for go.etcd.io/etcd/client/v3: plain HTTP, no credentials. It stays the
// same over restarts.
func (c *Cluster) EtcdEndpoint() string { return c.etcdURL }

// EtcdDataDir returns the data directory. A test can copy it while etcd is stopped, and put it back
// to restore etcd to an earlier state.
func (c *Cluster) EtcdDataDir() string { return filepath.Join(c.dir, "etcd") }

// EtcdPID returns the process ID of etcd, or 0 if it does not run.
func (c *Cluster) EtcdPID() int { return c.etcd.pid() }

// KillEtcd kills etcd, which loses nothing that it has acknowledged. An orderly shutdown would take
// seconds, waiting for the watches of the API servers to end.
func (c *Cluster) KillEtcd() { c.etcd.kill() }

// StartEtcd starts etcd again and returns when it is healthy. The API servers reconnect by
// themselves.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	if err := c.etcd.start(); err != nil {
		return err
	}
	err := c.etcd.waitReady(ctx, c.etcdHealthy)
	if err != nil {
		c.etcd.kill()
	}
	return err
}

// etcdHealthy also checks the name. The etcd of another cluster may have taken the port first: it
// is as healthy, and has no credentials that distinguish it. (API servers have different CAs and
// tokens.)
func (c *Cluster) etcdHealthy(ctx context.Context) error {
	if c.opts.Kine != "" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(c.etcdURL, "http://"))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := c.do(ctx, http.MethodGet, c.etcdURL+"/health", "", nil, nil); err != nil {
		return err
	}
	var list struct {
		Members []struct {
			Name string `json:"name"`
		} `json:"members"`
	}
	if err := c.do(ctx, http.MethodPost, c.etcdURL+"/v3/cluster/member/list", "", []byte("{}"), &list); err != nil {
		return err
	}
	if len(list.Members) != 1 || list.Members[0].Name != c.etcdName {
		return fmt.Errorf("another etcd answers: %v", list.Members)
	}
	return nil
}

// RestartEtcd is KillEtcd, StartEtcd, and a wait until the running API servers are ready again.
func (c *Cluster) RestartEtcd(ctx context.Context) error {
	c.KillEtcd()
	if err := c.StartEtcd(ctx); err != nil {
		return err
	}
	for _, s := range c.apiServers {
		if s.pid() == 0 {
			continue
		}
		if err := c.waitAPIServer(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Revision returns the current revision of etcd, which is the newest resourceVersion.
func (c *Cluster) Revision(ctx context.Context) (int64, error) {
	var status struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	if err := c.do(ctx, http.MethodPost, c.etcdURL+"/v3/maintenance/status", "", []byte("{}"), &status); err != nil {
		return 0, fmt.Errorf("etcd status: %w", err)
	}
	return status.Header.Revision, nil
}

// Compact discards the history before revision rev (0: before now), like the compactor of an API
// server, but at once. An Exact LIST from an older resourceVersion then answers 410, after a delay.
// Since Kubernetes 1.34 the API server keeps snapshots in its watch cache and checks only every 15
// s which of them to drop (feature gate ListFromCacheSnapshot). A WATCH from there answers 410 only
// when the watch cache no longer holds the events either. That is after a restart of the API
// server, or for a resource without a watch cache (Options.Uncached).
func (c *Cluster) Compact(ctx context.Context, rev int64) error {
	if rev == 0 {
		var err error
		rev, err = c.Revision(ctx)
		if err != nil {
			return err
		}
	}
	// API servers share the compacted revision under this key (apiserver,
	// pkg/storage/etcd3/compact.go). Without it they would continue to serve compacted revisions.
	key := []byte("compact_rev_key")
	put, err := json.Marshal(map[string][]byte{"key": key, "value": strconv.AppendInt(nil, rev, 10)})
	if err != nil {
		return err
	}
	if err := c.do(ctx, http.MethodPost, c.etcdURL+"/v3/kv/put", "", put, nil); err != nil {
		return fmt.Errorf("compact etcd at %d: %w", rev, err)
	}
	compact := fmt.Appendf(nil, `{"revision":"%d","physical":true}`, rev)
	if err := c.do(ctx, http.MethodPost, c.etcdURL+"/v3/kv/compaction", "", compact, nil); err != nil {
		return fmt.Errorf("compact etcd at %d: %w", rev, err)
	}
	return nil
}

// do sends one request and fails unless the answer is 200. The body is decoded into answer unless
// that is nil. etcd's own client would add gRPC and its dependencies to every user of this package;
// etcd speaks JSON as well.
func (c *Cluster) do(ctx context.Context, method, url, token string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.pki.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status + ": " + string(bytes.TrimSpace(text)))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
