package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Available returns nil if Pods can run; otherwise the error names what is missing.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root, for the namespaces of the containers")
	}
	if err := onThread(func() error {
		return unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS)
	}); err != nil {
		return fmt.Errorf("no namespaces: %w", err)
	}
	return nil
}

// onThread runs f on a thread that ends with it, so that f may change the namespaces and
// permissions of the thread.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// mount is a directory or file of a container.
type mount struct {
	source, target string
	readOnly       bool
}

// container is a started process.
type container struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
	sys   *syscall.SysProcAttr
	env   []string
}

func (c *container) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// code returns the exit code after ended is closed; -1 if the process was killed.
func (c *container) code() int {
	if c.cmd.ProcessState == nil {
		return -1
	}
	return c.cmd.ProcessState.ExitCode()
}

func (c *container) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // fails only if it has ended

func (c *container) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// start returns when the process exists.
func (p *pod) start(ctx context.Context, c *corev1.Container) (*container, error) {
	image, err := p.k.opts.Image(c.Image)
	if err != nil {
		return nil, err
	}
	uid, gid, groups, err := p.user(c, &image)
	if err != nil {
		return nil, err
	}
	env, values, err := p.environment(ctx, c)
	if err != nil {
		return nil, err
	}
	mounts, err := p.mounts(ctx, c, values)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(p.dir, "containers", c.Name)
	if err := p.fill(root, &image, mounts); err != nil {
		return nil, fmt.Errorf("root file system: %w", err)
	}
	argv := slices.Concat(image.Entrypoint, image.Cmd)
	switch {
	case len(c.Command) > 0:
		argv = slices.Concat(c.Command, c.Args)
	case len(c.Args) > 0:
		argv = slices.Concat(image.Entrypoint, c.Args)
	}
	for i := range argv {
		if i >= len(image.Entrypoint) || len(c.Command) > 0 {
			argv[i] = expand(argv[i], values)
		}
	}
	log, err := os.OpenFile(filepath.Join(p.k.opts.Dir, "logs",
		fmt.Sprintf("%s_%s_%s.log", p.object.Namespace, p.object.Name, c.Name)), os.O_CREATE|os.O_WRONLY|os.O_APPEND,
		0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own copy
	cmd := &exec.Cmd{
		Path:   argv[0],
		Args:   argv,
		Env:    env,
		Dir:    "/",
		Stdout: log,
		Stderr: log,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     root,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: groups},
	}
	running := &container{
		cmd:   cmd,
		ended: make(chan struct{}),
		sys:   cmd.SysProcAttr,
		env:   env,
	}
	started := make(chan error, 1)
	// Keeps its thread, because the process inherits the thread's namespaces and ends with the
	// thread. It ends with the process.
	go func() {
		runtime.LockOSThread() // and never unlocked, see onThread
		err := p.enter(root, c, mounts)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // the result is in its state
		}
		close(running.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(argv, " "), err)
	}
	return running, nil
}

// fill creates the container's root directory: the image's files, and mount points.
func (p *pod) fill(root string, image *Image, mounts []mount) error {
	if err := os.RemoveAll(root); err != nil { // of the previous run
		return err
	}
	for _, dir := range []string{"", "proc", "dev", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for inside, outside := range image.Files {
		mounts = append(mounts, mount{source: outside, target: inside})
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for name, address := range p.k.opts.Hosts {
		fmt.Fprintf(&hosts, "%s %s\n", address, name)
	}
	for name, text := range map[string]string{
		"etc/hosts":       hosts.String(),
		"etc/resolv.conf": "",
		"etc/hostname":    p.object.Name + "\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, m := range mounts {
		info, err := os.Stat(m.source)
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if err := mountPoint(filepath.Join(root, m.target), info.IsDir()); err != nil {
			return err
		}
	}
	return nil
}

func mountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	return f.Close()
}

// enter moves this thread into the Pod's network, a hostname and mounts of the container's own, and
// drops the rights that its securityContext does not grant.
func (p *pod) enter(root string, c *corev1.Container, mounts []mount) error {
	if err := p.network.enter(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Sethostname([]byte(p.object.Name)); err != nil {
		return fmt.Errorf("hostname: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	image, err := p.k.opts.Image(c.Image)
	if err != nil {
		return err
	}
	all := []mount{{source: "/proc", target: "/proc"}, {source: "/dev", target: "/dev"}}
	for inside, outside := range image.Files {
		all = append(all, mount{source: outside, target: inside, readOnly: true})
	}
	for _, m := range append(all, mounts...) {
		target := filepath.Join(root, m.target)
		if err := unix.Mount(m.source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if m.readOnly {
			if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("mount %s read-only: %w", m.target, err)
			}
		}
	}
	s := c.SecurityContext
	if s == nil {
		s = &corev1.SecurityContext{}
	}
	if s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem {
		if err := unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no_new_privs: %w", err)
		}
	}
	return bound(s.Capabilities)
}

// Capabilities that a container runtime leaves to root.
var runtimeDefault = map[corev1.Capability]uintptr{
	"CHOWN":            unix.CAP_CHOWN,
	"DAC_OVERRIDE":     unix.CAP_DAC_OVERRIDE,
	"FSETID":           unix.CAP_FSETID,
	"FOWNER":           unix.CAP_FOWNER,
	"SETGID":           unix.CAP_SETGID,
	"SETUID":           unix.CAP_SETUID,
	"SETFCAP":          unix.CAP_SETFCAP,
	"SETPCAP":          unix.CAP_SETPCAP,
	"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	"KILL":             unix.CAP_KILL,
	"SYS_CHROOT":       unix.CAP_SYS_CHROOT,
	"NET_RAW":          unix.CAP_NET_RAW,
	"MKNOD":            unix.CAP_MKNOD,
	"AUDIT_WRITE":      unix.CAP_AUDIT_WRITE,
}

// bound drops the capabilities that the container may not have from the bounding set of this
// thread. After the exec, a user other than root has no capability, and root has the remaining
// ones.
func bound(c *corev1.Capabilities) error {
	left := map[uintptr]bool{}
	for _, n := range runtimeDefault {
		left[n] = true
	}
	if c != nil {
		for _, name := range c.Drop {
			if name == "ALL" {
				clear(left)
			}
			delete(left, runtimeDefault[name])
		}
		for _, name := range c.Add {
			n, ok := runtimeDefault[name]
			if !ok {
				return fmt.Errorf("capability %s: not one that this kubelet gives", name)
			}
			left[n] = true
		}
	}
	for n := uintptr(0); n <= unix.CAP_LAST_CAP; n++ {
		if !left[n] {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); err != nil {
				return fmt.Errorf("drop capability %d: %w", n, err)
			}
		}
	}
	return nil
}

// exec runs a command in addition to the container's process, with its root, network, user and
// environment.
func (c *container) exec(ctx context.Context, n *network, argv []string) ([]byte, error) {
	var out []byte
	err := onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = c.env
		cmd.Dir = "/"
		cmd.Stdin = io.LimitReader(nil, 0)
		cmd.Stderr = &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Chroot:     fmt.Sprintf("/proc/%d/root", c.cmd.Process.Pid),
			Credential: c.sys.Credential,
			Pdeathsig:  syscall.SIGKILL,
		}
		var err error
		out, err = cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, &stderr)
		}
		return nil
	})
	return out, err
}
