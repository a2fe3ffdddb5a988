package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// collectBaseline asks the baseline for a collection. It is traced a moment later.
func collectBaseline(ctx context.Context, r *definitionsRig) error {
	if err := syscall.Kill(r.child.PID(), syscall.SIGUSR1); err != nil {
		return err
	}
	return rest(ctx, r.child, 200*time.Millisecond)
}

// collectOnOrder collects garbage whenever collectBaseline asks for it, until ctx ends.
func collectOnOrder(ctx context.Context) error {
	orders := make(chan os.Signal, 1) // one waiting order is enough
	signal.Notify(orders, syscall.SIGUSR1)
	defer signal.Stop(orders)
	for {
		select {
		case <-orders:
			runtime.GC()
		case <-ctx.Done():
			return nil
		}
	}
}
