package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the ranges from which systems give outgoing connections theirs (Linux: 32768 up, macOS:
// 49152 up). With a port of ":0", which is from that range, any client's connection may sit on it while a process is
// down for a restart.
const (
	firstPort = 15000
	lastPort  = 32000
)

// FreePort returns a port of 127.0.0.1 that was free a moment ago, for a process that keeps it over restarts. Another
// process may take it before that one binds it: the caller has to be ready to try another.
func FreePort(ctx context.Context) (int, error) {
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
