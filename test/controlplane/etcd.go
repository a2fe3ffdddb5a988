package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
)

func (c *Cluster) startNewEtcd(ctx context.Context, bin *Binaries) error {
	c.etcdName = rand.Text()
	return onFreePort(ctx, func(port int) error {
		c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", port)
		args := []string{
			"--name=" + c.etcdName,
			"--data-dir=" + c.EtcdDataDir(),
			"--listen-client-urls=" + c.etcdURL,
			"--advertise-client-urls=" + c.etcdURL,
			// A member must listen for peers, though there will be none: any port, and nobody has to know which.
			"--listen-peer-urls=http://127.0.0.1:0",
			// Room for benchmarks that write faster than they compact; the default of 2 GiB turns etcd read-only.
			"--quota-backend-bytes=8589934592",
		}
		if !c.opts.Fsync {
			args = append(args, "--unsafe-no-fsync")
		}
		c.etcd = newComponent(c.dir, "etcd", bin.argv(etcdBinary, append(args, c.opts.EtcdArgs...)))
		return c.StartEtcd(ctx)
	})
}

// EtcdEndpoint is the URL for go.etcd.io/etcd/client/v3: plain HTTP, no credentials. It stays the same over restarts.
func (c *Cluster) EtcdEndpoint() string { return c.etcdURL }

// EtcdDataDir is what a test copies while etcd is stopped, and puts back, to restore etcd to an earlier state.
func (c *Cluster) EtcdDataDir() string { return filepath.Join(c.dir, "etcd") }

// EtcdPID is 0 when etcd does not run.
func (c *Cluster) EtcdPID() int { return c.etcd.pid() }

// KillEtcd ends etcd without a warning, which loses nothing that it has acknowledged. Asked nicely it would take seconds,
// waiting for the watches of the API servers to end.
func (c *Cluster) KillEtcd() { c.etcd.kill() }

// StartEtcd starts etcd again and returns when it is healthy. The API servers find it by themselves.
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

// etcdHealthy also asks for the name: the etcd of another cluster may have won the race for the port, is as healthy, and
// has no credentials that would tell them apart. (API servers are told apart by their CA and tokens.)
func (c *Cluster) etcdHealthy(ctx context.Context) error {
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

// Revision is the revision of etcd now, which is the newest resourceVersion.
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

// Compact forgets the history before revision rev (0: before now) as the compactor of an API server does, but at once.
// From then on an Exact LIST from an older resourceVersion answers 410, though not at once: since Kubernetes 1.34 the API
// server keeps snapshots in its watch cache and asks only every 15 s which of them to drop (feature gate
// ListFromCacheSnapshot). A WATCH from there answers 410 only when the watch cache no longer holds the events either,
// that is after a restart of the API server, or for a resource without one (Options.Uncached).
func (c *Cluster) Compact(ctx context.Context, rev int64) error {
	if rev == 0 {
		var err error
		if rev, err = c.Revision(ctx); err != nil {
			return err
		}
	}
	// The key by which API servers tell each other what is compacted (apiserver, pkg/storage/etcd3/compact.go). Without
	// it they would go on to serve what etcd has forgotten.
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

// do sends one request and fails unless the answer is 200. The body is decoded into answer unless that is nil. etcd's
// own client would bring gRPC and its dependencies to everyone who only wants a cluster; etcd speaks JSON as well.
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
