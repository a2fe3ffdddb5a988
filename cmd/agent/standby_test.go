package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
)

// ledAPI is an API server on which another agent leads. That agent renews its Lease before each
// read.
type ledAPI struct {
	url     string
	failing atomic.Int64 // how many reads of the checkpoint still fail
	read    atomic.Int64 // successful reads of the checkpoint
	asked   atomic.Int64 // reads of the Lease
	written atomic.Int64 // writes to any object
}

// newLedAPI serves a checkpoint of the cluster prod and the default stream. If damage is not nil,
// it changes the data.
func newLedAPI(t *testing.T, damage func([]byte) []byte) *ledAPI {
	t.Helper()
	d := &checkpoint.Document{
		FormatVersion: checkpoint.FormatVersion, Writer: "test", Save: 1, Saved: time.Now(),
		Identity: checkpoint.Identity{
			ClusterUID: uidA,
			Cluster:    "prod",
			Bus:        "NATS, stream KUBECDC, subjects " + config.Default().Bus["nats"].(*nats.Config).Subject,
			Epoch:      7,
		},
	}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if damage != nil {
		data = damage(data)
	}
	a := &ledAPI{}
	server := fakeAPI(t, uidA, nil)
	rest := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			a.written.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/namespaces/cdc/configmaps/kubecdc-checkpoint":
			if a.failing.Add(-1) >= 0 {
				refuse(http.StatusInternalServerError, "InternalError", "etcd is away")(w, r)
				return
			}
			a.read.Add(1)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
					"name":            "kubecdc-checkpoint",
					"namespace":       "cdc",
					"resourceVersion": "5",
				},
				"data": map[string]string{"checkpoint.json": string(data)},
			})
		case "/apis/coordination.k8s.io/v1/namespaces/cdc/leases/kubecdc":
			n := a.asked.Add(1)
			fmt.Fprintf(w,
				`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"kubecdc","namespace":"cdc","resourceVersion":"%d"},
				"spec":{"holderIdentity":"other","leaseDurationSeconds":3600,"leaseTransitions":6,"renewTime":%q}}`,
				n, time.Unix(n, 0).UTC().Format("2006-01-02T15:04:05.000000Z"))
		default:
			rest.ServeHTTP(w, r)
		}
	})
	a.url = server.URL
	return a
}

// stand starts an agent that stands for election, with more appended to its configuration.
func (a *ledAPI) stand(t *testing.T, more string) *command {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	text := "apiVersion: kubecdc.dev/v1\nserver: {address: \"127.0.0.1:0\"}\nleaderElection: {enabled: true, namespace: cdc}\n" +
		"checkpoint: {configMap: {namespace: cdc}}\n" + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return launch(t, "run", "--config", file, "--kubeconfig", kubeconfig(t, a.url))
}

// An agent that could not lead ends instead of becoming a standby. Otherwise an update would end a
// working agent.
func TestWhoCouldNotLeadDoesNotStandBy(t *testing.T) {
	const bus = "cluster: prod\nbus: {nats: {url: \"nats://127.0.0.1:1\"%s}}\n"
	for name, test := range map[string]struct {
		config string
		damage func([]byte) []byte
		code   int
		want   string
	}{
		"headers": {
			"cluster: prod\nbus: {http: {url: \"http://127.0.0.1:1\", headersFile: /none/headers}}", nil, exitUsage,
			`bus\.http: headersFile: .*/none/headers`,
		},
		"authority of HTTP": {
			"cluster: prod\nbus: {http: {url: \"https://127.0.0.1:1\", tls: {caFile: /none/ca}}}", nil, exitUsage,
			`bus\.http: .*/none/ca`,
		},
		"authority of NATS": {
			fmt.Sprintf(bus, ", tls: {caFile: /none/ca}"), nil, exitFailed, `bus\.nats\.tls.*/none/ca`,
		},
		"login of NATS": {
			fmt.Sprintf(bus, ", auth: {credsFile: /none/creds}"), nil, exitFailed, `bus\.nats\.auth.*/none/creds`,
		},
		"authority of Kafka": {
			"cluster: prod\nbus: {kafka: {brokers: [\"127.0.0.1:1\"], tls: {caFile: /none/ca}}}", nil, exitFailed,
			`/none/ca`,
		},
		"collector of traces": {
			fmt.Sprintf(bus, "") +
				"tracing: {enabled: true, endpoint: \"http://127.0.0.1:1\", headersFile: /none/headers}", nil,
			exitUsage, `tracing: .*/none/headers`,
		},
		"another name": {
			strings.Replace(fmt.Sprintf(bus, ""), "prod", "renamed", 1), nil, exitFailed,
			`checkpoint ConfigMap cdc/kubecdc-checkpoint: it was written for cluster name "prod", the name is now "renamed"`,
		},
		"another stream": {
			fmt.Sprintf(bus, ", stream: {name: OTHER}"), nil, exitFailed,
			`it belongs to the records on NATS, stream KUBECDC.*, this is NATS, stream OTHER`,
		},
		"another subject": {
			fmt.Sprintf(bus, ", subject: \"other.{cluster}.{resource}\""), nil, exitFailed,
			`this is NATS, stream KUBECDC, subjects other`,
		},
		"damaged": {fmt.Sprintf(bus, ""), func(b []byte) []byte {
			return b[:len(b)/2]
		}, exitFailed, `cdc/kubecdc-checkpoint: it is damaged`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newLedAPI(t, test.damage)
			c := a.stand(t, test.config)
			select {
			case <-c.ended:
			case <-time.After(time.Minute):
				t.Fatalf("it stands by:\n%s", c.stderr)
			}
			if !regexp.MustCompile(`kubecdc: .*`+test.want).MatchString(c.stderr.String()) || c.code != test.code {
				t.Errorf("exit code %d, want %d; %s is not said:\n%s", c.code, test.code, test.want, c.stderr)
			}
			if a.asked.Load() != 0 || a.written.Load() != 0 {
				t.Errorf("it looked at the Lease %d times and wrote %d times", a.asked.Load(), a.written.Load())
			}
		})
	}
}

// If the API server is away for a moment, a standby retries. It is ready only after it has read the
// checkpoint. It neither writes anything nor connects to the bus.
func TestWhoStandsByHasReadTheCheckpoint(t *testing.T) {
	t.Parallel()
	bus, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan bool, 1)
	go func() {
		_, err := bus.Accept()
		connected <- err == nil
	}()
	a := newLedAPI(t, nil)
	a.failing.Store(2)
	c := a.stand(t, fmt.Sprintf("cluster: prod\nbus: {nats: {url: \"nats://%s\"}}\n", bus.Addr()))
	url := "http://" + c.says(t, `"server_address":"([^"]+)"`)[1] + "/readyz?verbose"
	c.says(t, `cannot reach the checkpoint, retrying.*etcd is away`)
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ready := false; !ready; {
		select {
		case <-deadline:
			t.Fatalf("it does not stand by:\n%s", c.stderr)
		case <-tick.C:
		}
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK && a.read.Load() == 0 {
			t.Fatalf("ready before the checkpoint was read:\n%s", text)
		}
		ready = resp.StatusCode == http.StatusOK && strings.Contains(string(text), "[+] leader: standby, other leads")
	}
	if code := c.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C:\n%s", code, c.stderr)
	}
	_ = bus.Close()
	if <-connected {
		t.Error("it has connected to the bus")
	}
	if a.written.Load() != 0 || a.read.Load() != 1 {
		t.Errorf("%d writes, and the checkpoint was read %d times, want none and once", a.written.Load(), a.read.Load())
	}
}
