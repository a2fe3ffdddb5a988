package controlplane

import (
	"context"
	"errors"

	child "github.com/kubecdc/kubecdc/test/process"
)

// startTries is how often a component that lost the race for its port is tried on another one.
const startTries = 10

// onFreePort calls start with one free port after the other until it does not fail for the port.
func onFreePort(ctx context.Context, start func(port int) error) error {
	var err error
	for range startTries {
		var port int
		if port, err = child.FreePort(ctx); err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}
