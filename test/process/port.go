package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken from below the ranges from which systems give outgoing connections theirs (Linux: 32768 up, macOS:
// 49152 up). With a port of ":0", which is from that range, any client's connection may sit on it while a process is
// down for a restart.
const (
	firstPort = 15000
	lastPort  = 32000
)

// reserved are the UDP sockets that reserve ports until this process ends.
var reserved struct {
	sync.Mutex
	sockets []net.PacketConn
}

// FreePort returns a port of 127.0.0.1 for a process that keeps it over restarts. Until this process ends, it holds the UDP port of that
// number. So no other test process gets the port while nothing listens on it. A process that is not of the tests may still take it.
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
			_ = held.Close() // it was only tried
			continue
		}
		reserved.Lock()
		reserved.sockets = append(reserved.sockets, held)
		reserved.Unlock()
		return port, l.Close()
	}
	return 0, errors.New("no free port on 127.0.0.1")
}
