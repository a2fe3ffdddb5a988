package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are below the range for outgoing connections (Linux: from 32768, macOS: from 49152). Port 0
// would select one from that range, which a client's connection may take while a process restarts.
const (
	firstPort = 15000
	lastPort  = 32000
)

// reserved are the UDP sockets that reserve ports until this process ends.
var reserved struct {
	sync.Mutex
	sockets []net.PacketConn
}

// FreePort returns a port of 127.0.0.1 for a process that keeps it over restarts. It holds the UDP
// port of that number until this process ends, so that FreePort in another process does not return
// the same port. Processes that do not use FreePort may take it.
func FreePort(ctx context.Context) (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		address, config := fmt.Sprintf("127.0.0.1:%d", port), new(net.ListenConfig)
		held, err := config.ListenPacket(ctx, "udp", address)
		if err != nil {
			continue
		}
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			_ = held.Close() // the TCP port is in use
			continue
		}
		reserved.Lock()
		reserved.sockets = append(reserved.sockets, held)
		reserved.Unlock()
		return port, l.Close()
	}
	return 0, errors.New("no free port on 127.0.0.1")
}
