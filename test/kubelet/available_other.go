//go:build !linux

package kubelet

import "errors"

// Available is nil where Pods can be run; else it says what is missing.
func Available() error { return errors.New("needs Linux, for the namespaces of the containers") }
