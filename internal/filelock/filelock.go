// Package filelock locks files between processes. A lock ends with the open file, or with the
// process, however that ends. The package starts no goroutine, and does not lock between goroutines
// that share the file.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked reports that another open file holds the lock.
var ErrLocked = errors.New("locked")

// MaxWait is how long Wait retries. A process that only checks a lock holds it for an instant, a
// killed one a little longer.
const MaxWait = time.Second

// Wait locks f. If another open file holds the lock for longer than MaxWait, or until ctx ends,
// Wait returns ErrLocked.
func Wait(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, MaxWait)
	defer cancel()
	tick := time.NewTicker(MaxWait / 20)
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
