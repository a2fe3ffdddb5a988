package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/agent"
)

const (
	uidA = "11e0c5a4-0000-4000-8000-00000000000a"
	uidB = "11e0c5a4-0000-4000-8000-00000000000b"
)

// listens is what the log says of the embedded JetStream.
const listens = `"msg":"embedded JetStream listens","url":"([^"]+)","data_dir":"([^"]+)"`

func TestEachClusterHasADirectoryByDefault(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	var urls []string
	for _, uid := range []string{uidA, uidB} {
		api := fakeAPI(t, uid, nil)
		c := launch(t, "run", "--kubeconfig", kubeconfig(t, strings.Replace(api.URL, "//", "//ann:t0ps3cret@", 1)))
		found := c.says(t, listens)
		dir := filepath.Join(data, "kubecdc", uid)
		if found[2] != dir {
			t.Errorf("data directory %s, want %s", found[2], dir)
		}
		urls = append(urls, found[1])
		c.says(t, "connected to bus")
		s, err := connect(t, found[1], nats.Token(tokenOf(t, dir))).Stream(t.Context(), "KUBECDC")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CachedInfo().Config.Subjects; len(got) != 1 || got[0] != "kubecdc."+uid+".>" {
			t.Errorf("the stream takes %q", got)
		}
		marker, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
		var m struct{ Cluster, APIServer string }
		if err == nil {
			err = json.Unmarshal(marker, &m)
		}
		if err != nil || m.Cluster != uid || m.APIServer != api.URL {
			t.Errorf("%v: the directory remembers %+v, without credentials it is %s", err, m, api.URL)
		}
	}
	if got, err := agent.FindBus("", io.Discard); got != urls[1] || err != nil {
		t.Errorf("tail reads %s (%v), the latest of %v is up", got, err, urls)
	}
	// With the URL, the token of the default directory is found, also under another name of the
	// host.
	for _, url := range []string{urls[0], strings.Replace(urls[0], "127.0.0.1", "localhost", 1)} {
		if code, stderr := runTail("--bus", url, "--no-follow", "--since", "all"); code != exitOK {
			t.Errorf("tail --bus %s: %d, %s", url, code, stderr)
		}
	}
}

// tokenOf returns the token of the embedded JetStream with this directory.
func tokenOf(t *testing.T, dir string) string {
	t.Helper()
	var bus struct{ Token string }
	text, err := os.ReadFile(filepath.Join(dir, "bus.json"))
	if err = errors.Join(err, json.Unmarshal(text, &bus)); err != nil || bus.Token == "" {
		t.Fatalf("bus.json has no token: %v", err)
	}
	return bus.Token
}

// The commands that read a record find a bus with a directory of its own by that directory.
func TestABusIsFoundByItsDirectory(t *testing.T) {
	dir := t.TempDir()
	code, stderr := runTail("--data-dir", dir, "--no-follow")
	if want := "no agent of this user runs with --data-dir " + dir; code != exitFailed ||
		!strings.Contains(stderr, want) {
		t.Errorf("without an agent: %d, %s", code, stderr)
	}
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--data-dir", dir)
	url := c.says(t, listens)[1]
	c.says(t, "connected to bus")
	if code, stderr := runTail("--data-dir", dir, "--no-follow", "--since", "all"); code != exitOK {
		t.Errorf("with its directory: %d, %s", code, stderr)
	}
	code, stderr = runTail("--bus", url, "--no-follow")
	if code != exitFailed || !strings.Contains(stderr, "Authorization Violation") ||
		!strings.Contains(stderr, "give the same --data-dir") {
		t.Errorf("without its directory: %d, %s", code, stderr)
	}
	code, stderr = runTail("--bus", url, "--data-dir", dir)
	if code != exitUsage || !strings.Contains(stderr, "remove one or the other") {
		t.Errorf("with both: %d, %s", code, stderr)
	}
	c.says(t, "refused a client without its token")

	relay := startRelay(t, "--data-dir", dir, "--to", "stdout:", "--name", "audit")
	relay.complaints.waitFor(t, "its position", func(got string) bool { return strings.Contains(got, "relay starts") })
	if code := relay.end(t); code != exitOK {
		t.Errorf("a relay with its directory: %d, %s", code, relay.complaints)
	}
	var errs strings.Builder
	if code := run(t.Context(), []string{"relay", "status", "--data-dir", dir, "--name", "audit"}, io.Discard,
		&errs); code != exitOK {
		t.Errorf("relay status with its directory: %d, %s", code, &errs)
	}
}

// runTail runs kubecdc tail to its end.
func runTail(args ...string) (code int, stderr string) {
	var errs strings.Builder
	code = run(context.Background(), append([]string{"tail"}, args...), io.Discard, &errs)
	return code, errs.String()
}

func TestADirectoryIsForOneAgentOfOneCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, there := fakeAPI(t, uidA, nil), fakeAPI(t, uidB, nil)
	first := launch(t, "run", "--kubeconfig", kubeconfig(t, here.URL), "--data-dir", dir)
	first.says(t, listens)

	second := launch(t, "run", "--kubeconfig", kubeconfig(t, here.URL), "--data-dir", dir)
	if code := second.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	second.says(t, regexp.QuoteMeta("kubecdc: data directory "+dir+": in use by another kubecdc (pid ")+`\d+\)`)

	if code := first.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C:\n%s", code, first.stderr)
	}
	first.says(t, `(?s)stopping the watches.*watches stopped, draining the queue","events":0.*drained, exiting`)
	first.says(t, regexp.QuoteMeta(`"msg":"records are kept for the next run","data_dir":"`+dir+`"`))

	other := launch(t, "run", "--kubeconfig", kubeconfig(t, there.URL), "--data-dir", dir)
	if code := other.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{uidA, uidB, here.URL, there.URL, "--data-dir"} {
		other.says(t, regexp.QuoteMeta(want))
	}

	again := launch(t, "run", "--kubeconfig", kubeconfig(t, here.URL), "--data-dir", dir)
	again.says(t, "connected to bus")
}

func TestABusThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "nats://" + l.Addr().String()
	l.Close()
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--bus", url)
	line := c.says(t, "cannot reach the bus.*")[0]
	for _, want := range []string{url, "connection refused", "retrying"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in: %s", want, line)
		}
	}
	if code := c.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C, and there was nothing to drain:\n%s", code, c.stderr)
	}
}

func TestAServerWithoutJetStream(t *testing.T) {
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--bus",
		startServer(t, "", -1).ClientURL())
	c.says(t, "cannot check the stream, retrying.*JetStream is not enabled on the server, or not ready: enable it")
}

func TestAStreamThatWouldLoseRecords(t *testing.T) {
	url := startServer(t, t.TempDir(), -1).ClientURL()
	_, err := connect(t, url).CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, MaxBytes: 1 << 20, Discard: jetstream.DiscardOld,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--bus", url)
	if code := c.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	c.says(t, `(?s)kubecdc: .*KUBECDC.*discards old records when it is full.*nats stream edit KUBECDC --discard=new`)
}

func TestAUIDThatIsAPathNamesNoDirectory(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	for _, uid := range []string{"..", "../x", "/etc", "a/b"} {
		api := fakeAPI(t, uid, nil)
		c := launch(t, "run", "--kubeconfig", kubeconfig(t, api.URL))
		if code := c.wait(); code != exitFailed || !strings.Contains(c.stderr.String(), "cannot name a directory") {
			t.Errorf("%q: exit code %d:\n%s", uid, code, c.stderr)
		}
	}
}

// The agent answers its probes while the API server does not.
func TestProbesBeforeTheAPIServer(t *testing.T) {
	api := fakeAPI(t, "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, api.URL), "--data-dir", t.TempDir())
	address := c.says(t, `"server_address":"([^"]+)"`)[1]
	res, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz: %s", res.Status)
	}
}
