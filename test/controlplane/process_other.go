//go:build !linux

package controlplane

import "syscall"

// sysProcAttr puts the process in a group of its own, so that a Ctrl-C at the terminal reaches only the parent, which
// then stops its children in order. That the process ends with its parent is left to the pipe on its standard input.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
