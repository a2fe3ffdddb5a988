package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// home is the home directory of a user who has a kubeconfig and nothing else.
type home struct{ dir string }

func newHome(t testing.TB) home { return home{t.TempDir()} }

// command returns a kubecdc command as the user runs it.
func (h home) command(t testing.TB, p *world.Plane, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(build.SharedAgent(t), args...)
	cmd.Dir = h.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "XDG_DATA_HOME=" + filepath.Join(h.dir, "data"),
		"XDG_RUNTIME_DIR=" + h.dir, "KUBECONFIG=" + p.Kubeconfig,
	}
	return cmd
}

// localAgent is an agent without a configuration.
type localAgent struct {
	*world.Process
	log      string // The file with its stderr.
	url, dir string // From its log.
}

// run starts an agent without a configuration and waits until it logs where its records are.
func (h home) run(t testing.TB, p *world.Plane, args ...string) *localAgent {
	t.Helper()
	a := h.start(t, p, args...)
	found := a.says(t, `"msg":"embedded JetStream listens","url":"([^"]+)","data_dir":"([^"]+)"`)
	a.url, a.dir = found[1], found[2]
	return a
}

func (h home) start(t testing.TB, p *world.Plane, args ...string) *localAgent {
	t.Helper()
	stderr, err := os.CreateTemp(t.TempDir(), "agent-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close() // The process has its own.
	a := &localAgent{log: stderr.Name()}
	cmd := h.command(t, p, append([]string{"run"}, args...)...)
	cmd.Stderr = stderr
	a.Process, err = world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Kill()
		world.FindCrash(t, a.stderr(t))
		if t.Failed() {
			t.Logf("log of the agent:\n%s", a.stderr(t))
		}
	})
	return a
}

func (a *localAgent) stderr(t testing.TB) []byte {
	t.Helper()
	log, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// says waits until the agent's stderr matches.
func (a *localAgent) says(t testing.TB, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	wait.Eventually(t, time.Minute, func() error {
		log := a.stderr(t)
		found = re.FindStringSubmatch(string(log))
		if found == nil {
			if a.Ended() {
				t.Fatalf("the agent has ended (%v) and never said %q:\n%s", a.Err, pattern, log)
			}
			return fmt.Errorf("nothing matches %q", pattern)
		}
		return nil
	})
	return found
}

// stop sends Ctrl-C.
func (a *localAgent) stop(t testing.TB) {
	t.Helper()
	if err := a.Cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(time.Minute); err != nil {
		t.Fatalf("the agent, interrupted: %v\n%s", err, a.stderr(t))
	}
}

// refusal returns the error message of an agent that fails to start.
func (a *localAgent) refusal(t testing.TB) string {
	t.Helper()
	err := a.Wait(time.Minute)
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("ended with %v, want exit code 1:\n%s", err, a.stderr(t))
	}
	_, message, _ := bytes.Cut(a.stderr(t), []byte("\nkubecdc: "))
	return string(message)
}

// stream returns the agent's stream, as a plain client gets it.
func (a *localAgent) stream(t testing.TB) jetstream.Stream {
	t.Helper()
	var bus struct{ Token string }
	text, err := os.ReadFile(filepath.Join(a.dir, "bus.json"))
	if err = errors.Join(err, json.Unmarshal(text, &bus)); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(a.url, nats.Token(bus.Token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	var s jetstream.Stream
	wait.Eventually(t, time.Minute, func() (err error) {
		s, err = js.Stream(t.Context(), world.StreamName)
		return err
	})
	return s
}

// stored waits for the record of an object and returns the sequence of the latest one.
func stored(t testing.TB, s jetstream.Stream, resource, namespace, name string) uint64 {
	t.Helper()
	subject := strings.TrimSuffix(s.CachedInfo().Config.Subjects[0], ">") + "object." + resource + "." + namespace +
		"." + name
	var seq uint64
	wait.Eventually(t, time.Minute, func() error {
		m, err := s.GetLastMsgForSubject(t.Context(), subject)
		if err == nil {
			seq = m.Sequence
		}
		return err
	})
	return seq
}

// contents returns the digests of the records up to a sequence.
func contents(ctx context.Context, s jetstream.Stream, upTo uint64) ([][sha256.Size]byte, error) {
	var all [][sha256.Size]byte
	for seq := uint64(1); seq <= upTo; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", seq, err)
		}
		all = append(all, sha256.Sum256(append([]byte(m.Subject+m.Header.Get("Nats-Msg-Id")), m.Data...)))
	}
	return all, nil
}

// TestWithoutConfiguration follows a user who has a kubeconfig and types `kubecdc run`. Other users
// of the machine may use the default port of NATS; then the agent takes the next free one.
func TestWithoutConfiguration(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	const namespace = "local"
	p.NewNamespace(t, namespace)
	h := newHome(t)
	a := h.run(t, p)
	port, err := strconv.Atoi(strings.TrimPrefix(a.url, "nats://127.0.0.1:"))
	if err != nil || port < 4222 || port > 4321 {
		t.Errorf("listens on %s, want 127.0.0.1 and a port of 4222 to 4321", a.url)
	}
	if want := filepath.Join(h.dir, "data", "kubecdc", p.UID); a.dir != want {
		t.Errorf("keeps records in %s, want %s", a.dir, want)
	}
	a.says(t, `"msg":"first snapshot complete, waiting for changes"`)
	p.NewConfigMap(t, namespace, "first")
	s := a.stream(t)
	seq := stored(t, s, "core.configmaps", namespace, "first")

	// In another terminal, without the port.
	out, err := h.command(t, p, "tail", "configmap/first", "-n", namespace, "--no-follow", "--since",
		"all").CombinedOutput()
	if err != nil || !strings.Contains(string(out), namespace+"/first") {
		t.Errorf("tail (%v):\n%s", err, out)
	}

	// A second agent must not start there.
	refusal := h.start(t, p).refusal(t)
	for _, want := range []string{
		"data directory " + a.dir, fmt.Sprintf("in use by another kubecdc (pid %d)", a.PID()), "--data-dir",
	} {
		if !strings.Contains(refusal, want) {
			t.Errorf("%q is not in: %s", want, refusal)
		}
	}

	before, err := contents(t.Context(), s, seq)
	if err != nil {
		t.Fatal(err)
	}
	a.stop(t)
	a.says(t, `"msg":"records are kept for the next run"`)
	a = h.run(t, p)
	after, err := contents(t.Context(), a.stream(t), seq)
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		oracle.Fail(t, "%d records are not what they were before the restart: %v", seq, err)
	}
}

// TestKilledAgentKeepsRecords kills a working agent together with its JetStream. Records that a
// consumer has received must remain.
func TestKilledAgentKeepsRecords(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	const namespace = "local-kill"
	p.NewNamespace(t, namespace)
	h := newHome(t)
	dir := filepath.Join(h.dir, "mine")
	a := h.run(t, p, "--data-dir", dir)
	a.says(t, `"msg":"first snapshot complete, waiting for changes"`)
	const n = 100
	for i := range n {
		p.NewConfigMap(t, namespace, fmt.Sprintf("c-%d", i))
	}
	s := a.stream(t)
	seq := stored(t, s, "core.configmaps", namespace, fmt.Sprintf("c-%d", n-1))
	before, err := contents(t.Context(), s, seq)
	if err != nil {
		t.Fatal(err)
	}
	a.Kill()

	a = h.run(t, p, "--data-dir", dir) // At once: the lock was released with the process.
	s = a.stream(t)
	after, err := contents(t.Context(), s, seq)
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		oracle.Fail(t, "%d records are not what they were before the kill: %v", seq, err)
	}
	// The new agent continues to record.
	p.NewConfigMap(t, namespace, "later")
	stored(t, s, "core.configmaps", namespace, "later")
}

// TestTwoClustersDoNotMix runs agents of two clusters for one user.
func TestTwoClustersDoNotMix(t *testing.T) {
	slow(t)
	t.Parallel()
	one := world.SharedPlane(t)
	other := world.BarePlane(t)
	h := newHome(t)
	a, b := h.run(t, one), h.run(t, other)
	if a.dir == b.dir || a.url == b.url {
		t.Fatalf("both use %s at %s", a.dir, a.url)
	}
	for agent, uid := range map[*localAgent]string{a: one.UID, b: other.UID} {
		if subjects := agent.stream(t).CachedInfo().Config.Subjects; len(subjects) != 1 ||
			subjects[0] != "kubecdc."+uid+".>" {
			t.Errorf("the stream of cluster %s takes %q", uid, subjects)
		}
	}
	a.stop(t)
	refusal := h.start(t, other, "--data-dir", a.dir).refusal(t)
	for _, want := range []string{"another cluster", one.UID, other.UID, one.APIServerURL(0), other.APIServerURL(0)} {
		if !strings.Contains(refusal, want) {
			t.Errorf("%q is not in: %s", want, refusal)
		}
	}
}

// atTerminal starts kubecdc at a terminal. screen returns the output so far, without escape
// sequences.
func (h home) atTerminal(
	t testing.TB, p *world.Plane, args ...string,
) (_ *world.Process, screen func() string, typed io.Writer) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close() // The process has its own.
	if err := pty.Setsize(master, &pty.Winsize{Rows: 30, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	cmd := h.command(t, p, append([]string{"run"}, args...)...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	cmd.Stdin = slave
	cmd.Stdout = slave
	cmd.Stderr = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	proc, err := world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown []byte
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := master.Read(buf)
			mu.Lock()
			shown = append(shown, buf[:n]...)
			mu.Unlock()
			if err != nil { // EIO, after the other end is closed.
				return
			}
		}
	})
	escapes := regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
	screen = func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.ReplaceAll(escapes.ReplaceAllString(string(shown), ""), "\r", "")
	}
	t.Cleanup(func() {
		proc.Kill()
		_ = master.Close()
		wg.Wait()
		text := screen() // including everything that was overwritten
		world.FindCrash(t, []byte(text))
		if t.Failed() {
			t.Logf("the terminal, at last:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return proc, screen, master
}

// shows waits until the terminal shows something that matches.
func shows(t testing.TB, screen func() string, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	wait.Eventually(t, time.Minute, func() error {
		if !re.MatchString(screen()) {
			return fmt.Errorf("nothing matches %q", pattern)
		}
		return nil
	})
}

// interrupt types Ctrl-C.
func interrupt(t testing.TB, typed io.Writer) {
	t.Helper()
	if _, err := typed.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
}

// TestAtATerminal is a session: the output, the suggested next steps, and Ctrl-C.
func TestAtATerminal(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	proc, screen, typed := newHome(t).atTerminal(t, p)
	shows(t, screen, `(?ms)^\d\d:\d\d:\d\d kubecdc starts .*server_address=127\.0\.0\.1:`)
	shows(t, screen, `(?m)^\d\d:\d\d:\d\d embedded JetStream listens url=nats://127\.0\.0\.1:`)
	shows(t, screen, `first snapshot complete, waiting for changes resources=\d+ objects=\d+`)
	shows(t, screen, `(?s)In another terminal:.*kubecdc tail --diff\s.*nats sub --context .*/bus\.json`)
	if strings.Contains(screen(), `{"time"`) || strings.Contains(screen(), "snapshot started") {
		t.Error("not what a person wants to read")
	}
	interrupt(t, typed)
	if err := proc.Wait(time.Minute); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	shows(t, screen, `(?s)stopping the watches.*draining the queue.*drained.*records are kept for the next run`)
	if strings.Contains(screen(), "WARN") || strings.Contains(screen(), "ERROR") {
		t.Error("warnings in a session without incidents")
	}
}

// TestASecondInterruptEndsAtOnce has a bus that is down when the queue must be drained.
func TestASecondInterruptEndsAtOnce(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	bus := world.StartBusProcess(t)
	proc, screen, typed := newHome(t).atTerminal(t, p, "--bus", bus.URL, "--grace", "1h")
	shows(t, screen, `first snapshot complete`)
	bus.Kill()
	shows(t, screen, `(?s)WARN .*bus`)
	p.NewNamespace(t, "second-interrupt")
	server := regexp.MustCompile(`server_address=(127\.0\.0\.1:\d+)`).FindStringSubmatch(screen())
	if server == nil {
		t.Fatal("the terminal does not show the server's address")
	}
	a := &world.Agent{URL: "http://" + server[1]}
	wait.Eventually(t, time.Minute, func() error { // The namespace is observed.
		n, err := a.Metric(t.Context(), "kubecdc_queue_events")
		if err == nil && n == 0 {
			err = errors.New("the queue is empty")
		}
		return err
	})
	interrupt(t, typed)
	shows(t, screen, `(?s)a second signal ends the process at once.*draining the queue events=[1-9]`)
	interrupt(t, typed)
	err := proc.Wait(time.Minute)
	if exit := new(exec.ExitError); !errors.As(err, &exit) ||
		exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("ended with %v, want the signal's default", err)
	}
}

// TestABusThatIsAwayAtTheStart starts the agent before the bus. Objects that it reads meanwhile are
// sent when the bus is up, and no history is lost.
func TestABusThatIsAwayAtTheStart(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	bus := world.StartBusProcess(t)
	bus.Kill()
	proc, screen, typed := newHome(t).atTerminal(t, p, "--bus", bus.URL)
	shows(t, screen, `(?s)WARN cannot reach the bus.*connection refused`)
	shows(t, screen, `[1-9]\d* objects`)
	bus.Start(t)
	shows(t, screen, `first snapshot complete`)
	interrupt(t, typed)
	if err := proc.Wait(time.Minute); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if strings.Contains(screen(), "history") {
		t.Error("history is said to be lost")
	}
}
