package e2e_test

import "syscall"

// sysProcAttr has the kernel kill the child when its parent ends, however that ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
