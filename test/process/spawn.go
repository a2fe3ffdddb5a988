package process

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Spawn starts cmd and returns when the process exists. It calls ended once, with the error of
// Wait, after the process has ended. By default, the process is in its own group: Ctrl-C in the
// terminal only reaches the parent, which then stops its children. On Linux the kernel kills the
// process when the parent ends for any reason. On other systems the process must detect that.
func Spawn(cmd *exec.Cmd, ended func(error)) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error, 1)
	// This goroutine runs as long as the process. PR_SET_PDEATHSIG sends the signal when the thread
	// that forked ends, not the process (golang.org/issue/27505). Go ends a thread when a goroutine
	// returns that has locked it. So this goroutine keeps its thread until the child has ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}
