package localbus_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/localbus"
)

const (
	clusterA = "11e0c5a4-0000-4000-8000-00000000000a"
	clusterB = "11e0c5a4-0000-4000-8000-00000000000b"
)

func options(dir string) localbus.Options {
	return localbus.Options{
		Dir:       dir,
		Cluster:   clusterA,
		APIServer: "https://a.example:6443",
		Log:       slog.New(slog.DiscardHandler),
	}
}

// start starts a bus that ends at the latest with the test.
func start(t *testing.T, o localbus.Options) *localbus.Bus {
	t.Helper()
	b, err := localbus.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func stop(t *testing.T, b *localbus.Bus) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// token returns the token of the bus of a directory.
func token(t *testing.T, dir string) string {
	t.Helper()
	at, ok := localbus.At(dir)
	if !ok {
		t.Fatalf("no bus in %s", dir)
	}
	return at.Token()
}

// stream creates or finds a stream.
func stream(t *testing.T, url, dir string) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Token(token(t, dir)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	return js, s
}

func publish(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		if _, err := js.Publish(t.Context(), "s."+strconv.Itoa(i), []byte("record")); err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func TestRecordsSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	b := start(t, options(dir))
	js, _ := stream(t, b.URL(), b.Dir())
	publish(t, js, 10)
	stop(t, b)

	_, s := stream(t, start(t, options(dir)).URL(), dir)
	if got := count(t, s); got != 10 {
		t.Errorf("%d of 10 records after a restart", got)
	}
}

func TestAcknowledgedRecordsSurviveAKill(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, clusterA)
	cmd, url := startProcess(t, dir)
	js, _ := stream(t, url, dir)
	publish(t, js, 200)

	want := []localbus.Address{{URL: url, Cluster: clusterA, Dir: dir, PID: cmd.Process.Pid}}
	up, err := localbus.Running(root)
	if diff := cmp.Diff(want, up, cmpopts.IgnoreFields(localbus.Address{}, "Started")); diff != "" || err != nil {
		t.Errorf("running (-want +got), %v:\n%s", err, diff)
	}
	_, err = localbus.Start(t.Context(), options(dir))
	if err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("in use by another kubecdc (pid %d)", cmd.Process.Pid)) {
		t.Errorf("got %v, want the pid that uses the directory", err)
	}

	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// bus.json still exists, but nobody holds the lock.
	if up, err := localbus.Running(root); len(up) > 0 || err != nil {
		t.Errorf("running after its end: %+v, %v", up, err)
	}
	_, s := stream(t, start(t, options(dir)).URL(), dir)
	if got := count(t, s); got != 200 {
		t.Errorf("%d of 200 records after a kill", got)
	}
}

// startProcess starts a local bus in a process of its own and returns its URL.
func startProcess(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Stderr = os.Stderr
	return cmd, startCommand(t, cmd, dir)
}

// startCommand starts a command that becomes a local bus.
func startCommand(t *testing.T, cmd *exec.Cmd, dir string) (url string) {
	t.Helper()
	cmd.Env = append(os.Environ(), asAgent+"="+dir)
	if _, err := cmd.StdinPipe(); err != nil { // stays open until this process ends
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestRunningListsTheNewestFirst(t *testing.T) {
	root := t.TempDir()
	if up, err := localbus.Running(filepath.Join(root, "none")); len(up) > 0 || err != nil {
		t.Errorf("no root: %+v, %v", up, err)
	}
	older, newer := options(filepath.Join(root, "a")), options(filepath.Join(root, "b"))
	newer.Cluster, newer.APIServer = clusterB, "https://b.example"
	a, b := start(t, older), start(t, newer)
	want := []localbus.Address{
		{URL: b.URL(), Cluster: clusterB, APIServer: "https://b.example", Dir: b.Dir(), PID: os.Getpid()},
		{URL: a.URL(), Cluster: clusterA, APIServer: "https://a.example:6443", Dir: a.Dir(), PID: os.Getpid()},
	}
	got, err := localbus.Running(root)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(localbus.Address{}, "Started")); diff != "" || err != nil {
		t.Errorf("running (-want +got), %v:\n%s", err, diff)
	}
	stop(t, b)
	if got, err := localbus.Running(root); len(got) != 1 || err != nil || got[0].Cluster != clusterA {
		t.Errorf("after the end of one: %+v, %v", got, err)
	}
}

// Running, which tries the lock, does not prevent a bus from starting.
func TestALookDoesNotDisturbAStart(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a")
	cmd, _ := startProcess(t, dir)
	_ = cmd.Process.Kill() // bus.json stays, so that Running tries the lock
	_ = cmd.Wait()
	done := make(chan struct{})
	looked := make(chan error)
	go func() {
		for {
			select {
			case <-done:
				looked <- nil
				return
			default:
			}
			if _, err := localbus.Running(root); err != nil {
				looked <- err
				return
			}
		}
	}()
	for range 3 {
		stop(t, start(t, options(dir)))
	}
	close(done)
	if err := <-looked; err != nil {
		t.Error(err)
	}
}

func TestDirectoriesThatAreRefused(t *testing.T) {
	marker := func(content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		options func(*localbus.Options)
		want    string // DIR is the directory
	}{
		"another cluster's": {
			prepare: marker(
				`{"format":1,"cluster":"` + clusterB +
					`","apiServer":"https://b.example","created":"2026-11-20T15:00:00Z"}`),
			want: "data directory DIR holds the records of another cluster:\n" +
				"  there  " + clusterB + " (https://b.example, since 2026-11-20)\n" +
				"  now    " + clusterA + " (https://a.example:6443)\n" +
				"choose another directory with --data-dir, or leave it out: then each cluster has its own",
		},
		"no JSON": {
			prepare: marker(`{"format":1,`),
			want:    "DIR/cluster.json is damaged or cannot be read: unexpected end of JSON input: move the directory away, or choose another with --data-dir",
		},
		"empty": {
			prepare: marker(``),
			want:    "DIR/cluster.json is damaged or cannot be read: unexpected end of JSON input: move the directory away, or choose another with --data-dir",
		},
		"no cluster": {
			prepare: marker(`{"format":1}`),
			want:    "DIR/cluster.json is damaged: it names no format or no cluster: move the directory away, or choose another with --data-dir",
		},
		"newer": {
			prepare: marker(`{"format":7,"cluster":["a","b"]}`),
			want:    "DIR/cluster.json was written by a newer kubecdc (format 7, this one supports 1): use that version, or choose another directory with --data-dir",
		},
		"somebody's JetStream": {
			prepare: func(t *testing.T, dir string) {
				t.Helper()
				if err := os.Mkdir(filepath.Join(dir, "jetstream"), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			want: "data directory DIR has records, but no cluster.json that names their cluster: move the directory away, or choose another with --data-dir",
		},
		"no store": {
			prepare: func(t *testing.T, dir string) {
				t.Helper()
				marker(`{"format":1,"cluster":"`+clusterA+`"}`)(t, dir)
				if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: "embedded JetStream in DIR: Can't start JetStream",
		},
		"not a directory": {
			prepare: func(t *testing.T, dir string) {
				t.Helper()
				if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			},
			want: "data directory DIR: not a directory: correct this, or choose another with --data-dir",
		},
		"full disk": {
			options: func(o *localbus.Options) { o.MinFree = 1 << 62 },
			want:    "data directory DIR: the disk is full: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			if test.prepare != nil {
				test.prepare(t, o.Dir)
			}
			if test.options != nil {
				test.options(&o)
			}
			b, err := localbus.Start(t.Context(), o)
			if err == nil {
				_ = b.Close()
				t.Fatal("started")
			}
			if got := strings.ReplaceAll(err.Error(), o.Dir, "DIR"); !strings.HasPrefix(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			// A refusal releases the directory, and does not assign it to this cluster.
			if _, err := localbus.Start(t.Context(), o); err == nil || strings.Contains(err.Error(), "in use") {
				t.Errorf("again: %v", err)
			}
		})
	}
}

func TestTakenPortsArePassedOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port

	o := options(t.TempDir())
	o.FirstPort, o.LastPort = taken, taken
	_, err = localbus.Start(t.Context(), o)
	if want := fmt.Sprintf("all of 127.0.0.1:%d to %d are taken", taken, taken); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if taken > 65000 {
		t.Skip("no ports above it")
	}
	o.LastPort = taken + 100
	b := start(t, o)
	u, err := url.Parse(b.URL())
	if err != nil || u.Hostname() != "127.0.0.1" || u.Port() == strconv.Itoa(taken) {
		t.Errorf("listens on %s beside %d", b.URL(), taken)
	}
	js, _ := stream(t, b.URL(), b.Dir())
	publish(t, js, 1)
}

func TestALostStoreEndsTheWait(t *testing.T) {
	t.Parallel()
	b := start(t, options(t.TempDir()))
	ended := make(chan error, 1)
	go func() { ended <- b.Wait(t.Context()) }()
	if err := b.LoseStore(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "can no longer write to "+b.Dir()) {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("not noticed")
	}
}

func TestDefaultRoot(t *testing.T) {
	for _, test := range []struct{ data, home, want string }{
		{"/data", "/home/a", "/data/kubecdc"},
		{"relative", "/home/a", "/home/a/.local/share/kubecdc"}, // as the specification has it
		{"", "/home/a", "/home/a/.local/share/kubecdc"},
	} {
		got, err := localbus.DefaultRoot(func(name string) string {
			return map[string]string{"XDG_DATA_HOME": test.data, "HOME": test.home}[name]
		})
		if got != test.want || err != nil {
			t.Errorf("%+v: got %q, %v", test, got, err)
		}
	}
}

// The server accepts its token only. Each start has another one, and readers get it only for the
// URL at which the bus is up.
func TestTheTokenIsThatOfThisRun(t *testing.T) {
	dir := t.TempDir()
	first := start(t, options(dir))
	for _, wrong := range []string{"", "kubecdc", first.Token() + "x"} {
		nc, err := nats.Connect(first.URL(), nats.Token(wrong))
		if !errors.Is(err, nats.ErrAuthorization) {
			nc.Close()
			t.Errorf("a client with another token: %v", err)
		}
	}
	stream(t, first.URL(), dir)
	at, ok := localbus.At(dir)
	if !ok || at.Token() != first.Token() {
		t.Error("the bus is not found with its token")
	}
	elsewhere := at
	elsewhere.URL = "nats://127.0.0.1:1"
	if elsewhere.Token() != "" {
		t.Error("the token is for another URL too")
	}
	stop(t, first)
	if at.Token() != "" {
		t.Error("there is a token after the end")
	}
	if second := start(t, options(dir)); second.Token() == first.Token() {
		t.Error("the next run has the same token")
	}
}
