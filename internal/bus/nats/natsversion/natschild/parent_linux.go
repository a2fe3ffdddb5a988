package natschild

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel end the child together with this process.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
