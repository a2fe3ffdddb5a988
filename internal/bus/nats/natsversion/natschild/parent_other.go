//go:build !linux

package natschild

import "os/exec"

// endWithParent does nothing: only Linux can.
func endWithParent(*exec.Cmd) {}
