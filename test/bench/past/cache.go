package past

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubecdc/kubecdc/internal/filelock"
	"github.com/kubecdc/kubecdc/internal/object"
)

// layoutOf returns a part of the name of each bus's cached records. Another one is necessary when
// the same Options make another record on this bus, or other files.
func layoutOf(bus string) string {
	if bus == "nats" {
		return "2" // scopes have subjects of their own
	}
	return "1"
}

// contentsFile is written last: with it, a cached record is complete.
const contentsFile = "contents.json"

// hour is the span of Contents.LastHour.
const hour = time.Hour

// Contents says what a record has. Whole and Short are its two lengths.
type Contents struct {
	Whole Count `json:"whole"`
	Short Count `json:"short"`
	// Young are deployments that were created after the shorter record began.
	Young []Of `json:"young"`
	// LastHour is the number of changes in each namespace in the last hour.
	LastHour map[string]int `json:"lastHour"`
}

// Count is the number of events.
type Count struct {
	Events   int   `json:"events"`
	Changes  int   `json:"changes"`
	Progress int   `json:"progress"`
	Bytes    int64 `json:"bytes"` // of the events alone
}

func (c *Count) add(e Event) {
	c.Events++
	c.Bytes += int64(len(e.Body))
	switch d := e.Delta; {
	case d.Report != nil:
		c.Progress++
	case d.Stream == nil && d.Op != object.Read:
		c.Changes++
	}
}

// Say prints how far the work is. The arguments are those of fmt.Printf.
type Say func(format string, args ...any)

// fill writes a record with put, and says every few seconds how far it is.
func fill(ctx context.Context, o Options, say Say, put func(Event) error) (*Contents, error) {
	r, err := New(o)
	if err != nil {
		return nil, err
	}
	c := &Contents{LastHour: map[string]int{}}
	told := time.Now()
	err = r.Write(func(e Event) error {
		c.Whole.add(e)
		if !e.Time.Before(o.Short) {
			c.Short.add(e)
		}
		if d := e.Delta; d.Ref != nil && d.Op != object.Read && !e.Time.Before(o.End.Add(-hour)) {
			c.LastHour[d.Ref.Namespace()]++
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			day := func(t time.Time) int { return int(t.Sub(o.Begin)/(24*time.Hour)) + 1 }
			say("writing the record: day %d of %d", day(e.Time), day(o.End))
		}
		return errors.Join(put(e), context.Cause(ctx))
	})
	if err != nil {
		return nil, fmt.Errorf("write a record: %w", err)
	}
	span := o.End.Sub(o.Short)
	const young = 20
	c.Young = r.Young(young, o.Short.Add(span/10), o.End.Add(-span/2))
	return c, nil
}

// Cached is a record in the user's cache. Nobody else uses it until Close.
type Cached struct {
	*Contents

	Dir  string
	lock *os.File
}

// Open opens the record of a bus in the cache. write makes it in an empty directory, unless it is
// there. Another process that has opened it is waited for.
func Open(
	ctx context.Context, bus string, o Options, say Say, write func(dir string) (*Contents, error),
) (_ *Cached, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %+v", layoutOf(bus), server.VERSION, o))
	c := &Cached{Dir: filepath.Join(cache, "kubecdc", fmt.Sprintf("record-%s-%x", bus, sum[:8]))}
	if err = os.MkdirAll(filepath.Dir(c.Dir), 0o755); err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	c.lock, err = os.OpenFile(c.Dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for {
		err = filelock.Wait(ctx, c.lock)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, filelock.ErrLocked) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", c.lock.Name(), err), context.Cause(ctx))
		}
		say("waiting for another process that uses %s", c.Dir)
	}
	c.Contents, err = readContents(c.Dir)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return c, err
	}
	if err = errors.Join(os.RemoveAll(c.Dir), os.MkdirAll(c.Dir, 0o755)); err != nil {
		// what an interrupted run has left
		return nil, err
	}
	say("writing a record to %s, once", c.Dir)
	c.Contents, err = write(c.Dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.Dir))
	}
	text, err := json.MarshalIndent(c.Contents, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Dir, contentsFile), text, 0o644)
	}
	return c, err
}

// Close releases the record for other processes.
func (c *Cached) Close() error { return c.lock.Close() }

func readContents(dir string) (*Contents, error) {
	text, err := os.ReadFile(filepath.Join(dir, contentsFile))
	if err != nil {
		return nil, err
	}
	c := &Contents{}
	return c, json.Unmarshal(text, c)
}
