package controlplane

import "syscall"

// sysProcAttr puts the process in a group of its own, so that a Ctrl-C at the terminal reaches only the parent, which
// then stops its children in order; and has the kernel kill it when the parent ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
