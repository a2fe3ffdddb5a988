package controlplane

import (
	"context"
	"errors"

	child "github.com/kubecdc/kubecdc/test/process"
)

// startTries is how often a component is started on another port after another process took its
// port.
const startTries = 10

// onFreePort calls start with free ports until it does not fail because of the port.
func onFreePort(ctx context.Context, start func(port int) error) error {
	var err error
	for range startTries {
		var port int
		port, err = child.FreePort(ctx)
		if err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}
