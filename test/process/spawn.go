package process

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Spawn starts cmd and returns when the process exists; ended is called once, with what Wait returned, when it is gone.
// It is in a group of its own, unless cmd says otherwise, so that a Ctrl-C at the terminal reaches only the parent, which
// then stops its children in order. On Linux the kernel kills it when the parent ends, however that ends; elsewhere it has to see to that.
func Spawn(cmd *exec.Cmd, ended func(error)) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error, 1)
	// This goroutine outlives the function, as the process does. PR_SET_PDEATHSIG fires when the thread that forked ends,
	// not the process (golang.org/issue/27505). Go ends a thread when a goroutine that locked it returns, and any may do
	// that. So this goroutine keeps its thread until the child is gone.
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
