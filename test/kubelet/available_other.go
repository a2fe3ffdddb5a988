//go:build !linux

package kubelet

import "errors"

// Available returns nil if Pods can run; otherwise the error names what is missing.
func Available() error { return errors.New("needs Linux, for the namespaces of the containers") }
