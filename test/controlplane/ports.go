package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the ranges from which systems give outgoing connections theirs (Linux: 32768 up, macOS:
// 49152 up). With a port of ":0", which is from that range, any client's connection may sit on it while a component is
// down for a restart.
const (
	firstPort = 15000
	lastPort  = 32000
)

// startTries is how often a component that lost the race for its port is tried on another one.
const startTries = 10

// freePort returns a port of 127.0.0.1 that was free a moment ago. Another process may take it before the component
// binds it, so the caller has to try again on errPortTaken.
func freePort(ctx context.Context) (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

// onFreePort calls start with one free port after the other until it does not fail for the port.
func onFreePort(ctx context.Context, start func(port int) error) error {
	var err error
	for range startTries {
		var port int
		if port, err = freePort(ctx); err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}
