//go:build !linux

package process

import (
	"errors"
	"syscall"
	"time"
)

var errUnsupported = errors.New("the benchmark reads what processes cost from Linux")

func endWithParent(*syscall.SysProcAttr) {}

// AdoptOrphans does nothing here.
func AdoptOrphans() error { return nil }

// Children is not available here: it returns nil.
func Children() []Running { return nil }

// CPU is not available here.
func CPU(int) (time.Duration, error) { return 0, errUnsupported }

// ReadMemory is not available here.
func ReadMemory(int) (Memory, error) { return Memory{}, errUnsupported }

// ResetPeak is not available here.
func ResetPeak(int) error { return errUnsupported }

// Available is not available here.
func Available() (int64, error) { return 0, errUnsupported }
