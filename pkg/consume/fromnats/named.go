package fromnats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/pause"
)

// A permission confines a reader to filters only if it also has the names of the reader's
// consumers. Such a reader uses the same names at each start. Another one may have them:
//
//	the consumer              requests wait at it     what a reader does
//	does not exist            -                       creates it
//	belongs to another        yes                     fails, with an error that describes the other
//	belongs to another        no: it has ended        deletes it, and creates its own
//	belongs to no reader      -                       fails
//
// Its requests name the consumer, and would reach that of another reader in the same way. So one of
// them always waits on the server. If the consumer is deleted, the server answers it, and the
// reader sends no more. A reader that was asked for nothing for too long sends no more either.

const (
	// These are keys in the metadata of a consumer with a fixed name.
	readerKey  = "kubecdc-reader"  // identifies the reader
	processKey = "kubecdc-process" // describes it

	// seenWithin limits how long the server may take to count a request, beside a search.
	seenWithin = 2 * time.Second
)

var (
	errLapsed = errors.New("the requests for records may have expired, so another reader may have the consumer")
	errTaken  = errors.New("another reader has taken the consumer")
)

// InUseError reports that another reader uses a name of JetStream.Consumers.
type InUseError struct {
	Consumer string
	By       string // "host web-1, process 4711"
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("consumer %s is in use by another reader (%s): give each reader names of its own", e.Consumer,
		e.By)
}

// consumerName returns the name of the reader's k-th consumer; of "" it has none of its own.
func (s *JetStream) consumerName(k int) string { return s.Consumers + "-" + strconv.Itoa(k) }

// describeProcess describes this process for people.
func describeProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("host %s, process %d", host, os.Getpid())
}

// claim creates a consumer with a fixed name.
func (r *jetStreamReader) claim(ctx context.Context, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c.Metadata = map[string]string{readerKey: r.id, processKey: describeProcess()}
	made, err := r.js.CreateConsumer(ctx, r.stream, c)
	if !errors.Is(err, jetstream.ErrConsumerExists) {
		return made, err
	}
	other, err := r.consumerInfo(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	switch by := other.Config.Metadata[readerKey]; {
	case by == "":
		return nil, fmt.Errorf("consumer %s exists, and no reader has created it: choose other names", c.Name)
	case by != r.id && other.NumWaiting > 0:
		return nil, &InUseError{c.Name, other.Config.Metadata[processKey]}
	}
	if err := r.js.DeleteConsumer(ctx, r.stream, c.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err
	}
	made, err = r.js.CreateConsumer(ctx, r.stream, c)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		err = fmt.Errorf("consumer %s: %w", c.Name, errTaken)
	}
	return made, err
}

// requestFirst sends the first request of a pull, and returns when the server has counted it, at
// the latest after limit. From then on the server answers it if another reader deletes the
// consumer.
func (r *jetStreamReader) requestFirst(ctx context.Context, p *pull, limit time.Duration) error {
	p.isHeld = true
	if err := p.refill(r.heartbeats()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		info, err := r.consumerInfo(ctx, p.name())
		switch {
		case err != nil:
			return err
		case info.Config.Metadata[readerKey] != r.id:
			return fmt.Errorf("consumer %s: %w", p.name(), errTaken)
		case info.NumWaiting > 0 || info.Delivered.Consumer > 0: // a request ends when it is satisfied
			return nil
		}
		if err := pause.For(ctx, quickHeartbeat); err != nil {
			return fmt.Errorf("consumer %s: the server has no request of its reader: %w", p.name(), err)
		}
	}
}

func (r *jetStreamReader) consumerInfo(ctx context.Context, name string) (*jetstream.ConsumerInfo, error) {
	c, err := r.js.Consumer(ctx, r.stream, name)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound): // another reader has deleted it, and will create its own
		return nil, fmt.Errorf("consumer %s: %w", name, errTaken)
	case err != nil:
		return nil, err
	}
	return c.CachedInfo(), nil
}

// release deletes a consumer with a fixed name, unless another reader has taken it.
func (r *jetStreamReader) release(ctx context.Context, name string) error {
	info, err := r.consumerInfo(ctx, name)
	if err != nil || info.Config.Metadata[readerKey] != r.id {
		return err
	}
	return r.js.DeleteConsumer(ctx, r.stream, name)
}

// hasLapsed reports whether a consumer with a fixed name may belong to another reader now.
func (m *merge) hasLapsed() bool {
	for _, p := range m.pulls {
		if p.hasLapsed() {
			return true
		}
	}
	return false
}

// hasLapsed reports whether the server may have no request of this pull any more.
func (p *pull) hasLapsed() bool {
	return p.isHeld && !p.renewed.IsZero() && time.Since(p.renewed) > p.lives*5/6
}

// mustRenew reports whether the pull must send another request, although enough records are
// requested.
func (p *pull) mustRenew() bool { return p.isHeld && time.Since(p.renewed) > p.lives/2 }
