// Package filelock locks files between processes. A lock ends with the open file, or with the process, however that ends.
// It starts no goroutine, and is no lock between goroutines that share the file.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked says that somebody else holds the lock.
var ErrLocked = errors.New("locked")

// Patience is how long Wait tries: who only looks holds a lock for an instant, and a process that was killed for some more.
const Patience = time.Second

// Wait locks f, and tries for Patience while somebody else holds the lock: ErrLocked after that, or when ctx ends.
func Wait(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	tick := time.NewTicker(Patience / 20)
	defer tick.Stop()
	for {
		if err := Exclusive(f); !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ErrLocked
		}
	}
}
