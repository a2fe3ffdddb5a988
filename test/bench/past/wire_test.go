package past_test

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/proxy"
)

// Wire is a proxy that counts what a server sends.
type Wire struct {
	*proxy.Proxy

	down atomic.Int64
	run  errgroup.Group
	stop context.CancelFunc
}

// NewWire forwards to a server until Close.
func NewWire(server string) (*Wire, error) {
	p, err := proxy.Listen(server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Wire{Proxy: p, stop: cancel}
	p.Inspect(func() proxy.Filter {
		return func(down bool, piece []byte) bool {
			if down {
				w.down.Add(int64(len(piece)))
			}
			return true
		}
	})
	w.run.Go(func() error { return p.Run(ctx) })
	return w, nil
}

// Taken returns how many bytes clients got since the last call.
func (w *Wire) Taken() int64 { return w.down.Swap(0) }

// Close ends the proxy and its connections.
func (w *Wire) Close() error {
	w.stop()
	return w.run.Wait()
}
