package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	child "github.com/kubecdc/kubecdc/test/process"
)

// errPortTaken is for errors.Is: the component could not bind its port.
var errPortTaken = errors.New("port taken by another process")

// component is one program of the control plane over all its starts and stops.
type component struct {
	name       string // Also the name of its log file: "kube-apiserver-0".
	argv       []string
	logPath    string
	upstreamGC bool // See Options.

	mu      sync.Mutex
	proc    *process // Nil before the first start; may have ended.
	logFrom int64    // Offset at which the log of this run begins.
}

func (c *Cluster) newComponent(name string, argv []string) *component {
	return &component{
		name:       name,
		argv:       argv,
		logPath:    filepath.Join(c.dir, name+".log"),
		upstreamGC: c.opts.UpstreamGC,
	}
}

// process is one run of a component.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer // Held open: end of file on it ends the process.
	done  chan struct{}
	err   error // The result of Wait; readable after done is closed.
}

// start runs the component and returns as soon as the process exists.
func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil && c.proc.running() {
		return fmt.Errorf("start %s: it is running already, pid %d", c.name, c.proc.cmd.Process.Pid)
	}
	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", c.name, err)
	}
	defer func() { _ = log.Close() }() // The process has its own copy.
	c.logFrom, err = log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("log of %s: %w", c.name, err)
	}
	p, err := startProcess(c.argv, environment(c.upstreamGC), log)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.proc = p
	return nil
}

func startProcess(argv, env []string, log *os.File) (*process, error) {
	// It outlives the context of Start, and ends with stop or kill.
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = env
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	err = child.Spawn(cmd, func(err error) {
		p.err = err
		close(p.done)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// environment keeps the caller's variables for Go (GODEBUG, GOMEMLIMIT) and etcd (every flag can be
// set by an ETCD_ variable) away from the components. Without upstreamGC, they collect garbage less
// often: in the tests of e2e they need a sixth less processor time so. An API server has 0.4 GiB
// then instead of 0.3. The limit bounds one with very many objects.
func environment(upstreamGC bool) []string {
	env := []string{"KUBECDC_EXIT_ON_STDIN_EOF=1"}
	if !upstreamGC {
		env = append(env, "GOGC=400", "GOMEMLIMIT=1GiB")
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// current returns the running process, or nil.
func (c *component) current() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil || !c.proc.running() {
		return nil
	}
	return c.proc
}

// pid returns 0 if the component does not run.
func (c *component) pid() int {
	if p := c.current(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// terminate sends a termination signal, kills the component after the grace period, and returns
// when it is gone.
func (c *component) terminate(grace time.Duration) {
	p := c.current()
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // Fails only if it has ended by itself.
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		c.kill()
	}
}

// kill kills the component and returns when it is gone.
func (c *component) kill() {
	if p := c.current(); p != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// waitReady polls until ready returns nil, the process ends, or the timeout expires.
func (c *component) waitReady(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	p := c.current()
	if p == nil {
		return c.failed(errors.New("ended at once"))
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-p.done:
			return c.failed(fmt.Errorf("ended before it was ready: %w", p.err))
		case <-ctx.Done():
			return c.failed(fmt.Errorf("not ready: %w; last answer: %w", context.Cause(ctx), last))
		case <-tick.C:
		}
		// Bounded, because another process may have taken the port, and not answer.
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // Otherwise the error is only that of the context.
			last = err
		}
	}
}

// failed adds the end of the log to err.
func (c *component) failed(err error) error {
	tail := c.logTail(25)
	if bytes.Contains(tail, []byte("address already in use")) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("%s: %w\nend of %s:\n%s", c.name, err, c.logPath, tail)
}

// logTail returns up to n of the last lines that this run has logged, fewer if they are long.
func (c *component) logTail(n int) []byte {
	c.mu.Lock()
	from := c.logFrom
	c.mu.Unlock()
	f, err := os.Open(c.logPath)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	const most = 16 << 10
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(from, size-most), most))
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
