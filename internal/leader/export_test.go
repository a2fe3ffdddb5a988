package leader

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Instant is a point in time by two clocks, in nanoseconds.
type Instant = instant

// Spec is what a Lease says.
type Spec = leaseSpec

// Server is an API server that has one Lease. Its zero value has none.
type Server struct {
	mu         sync.Mutex
	lease      *lease
	uid        int
	version    int
	writes     []Spec
	transcript []string
}

// Client is a connection to a server. Before is called before each request is carried out, and may
// fail it; After may drop the answer. Both may block.
type Client struct {
	Server        *Server
	Before, After func(ctx context.Context, verb string) error
}

// NewWith is New with a fake API server and fake clocks.
func NewWith(o Options, c *Client, now func() Instant) *Elector {
	if now == nil {
		return newElector(o, c, systemClock())
	}
	return newElector(o, c, now)
}

// Open reports whether the fence would be open at now, instead of at the time of its own clock.
func (f *Fence) Open(now Instant) bool {
	renewed := f.renewed.Load()
	return renewed != nil && f.isValidAt(now, renewed)
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// Spec returns the spec of the Lease, or nil if there is no Lease.
func (s *Server) Spec() *Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil
	}
	spec := s.lease.Spec
	return &spec
}

// Writes returns all specs that electors have written.
func (s *Server) Writes() []Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Spec(nil), s.writes...)
}

// Transcript returns a line for each write.
func (s *Server) Transcript() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.transcript...)
}

// Delete removes the Lease.
func (s *Server) Delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = nil
}

// Edit changes the Lease as kubectl does; with nil, it changes only the metadata.
func (s *Server) Edit(change func(*Spec)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change != nil {
		change(&s.lease.Spec)
	}
	s.stamp()
}

func (s *Server) stamp() {
	s.version++
	s.lease.Metadata = json.RawMessage(fmt.Sprintf(`{"uid":"%d","resourceVersion":"%d"}`, s.uid, s.version))
}

func (s *Server) do(verb string, l *lease) (*lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case verb == "create" && s.lease != nil:
		return nil, apierrors.NewAlreadyExists(resource(), "kubecdc")
	case verb == "update" && s.lease == nil:
		// An update creates a Lease, but not if it names another uid.
		return nil, apierrors.NewConflict(resource(), "kubecdc", nil)
	case verb == "get" && s.lease == nil:
		return nil, apierrors.NewNotFound(resource(), "kubecdc")
	case verb == "update" && string(l.Metadata) != string(s.lease.Metadata):
		return nil, apierrors.NewConflict(resource(), "kubecdc", nil)
	case verb == "create":
		s.uid++
		s.lease = new(lease)
	}
	if verb != "get" {
		s.lease.Spec = l.Spec
		s.writes = append(s.writes, l.Spec)
		s.transcript = append(s.transcript,
			fmt.Sprintf("%s %s uid %d %q transitions %d %ds", time.Now().Format("04:05.000"), verb, s.uid,
				l.Spec.HolderIdentity, l.Spec.LeaseTransitions, l.Spec.LeaseDurationSeconds))
		s.stamp()
	}
	out := *s.lease
	return &out, nil
}

func (c *Client) request(ctx context.Context, verb string, l *lease) (*lease, error) {
	if c.Before != nil {
		if err := c.Before(ctx, verb); err != nil {
			return nil, err
		}
	}
	out, err := c.Server.do(verb, l)
	if c.After != nil {
		if lost := c.After(ctx, verb); lost != nil {
			return nil, lost
		}
	}
	return out, err
}

func (c *Client) get(ctx context.Context) (*lease, error) { return c.request(ctx, "get", nil) }

func (c *Client) create(ctx context.Context, l *lease) (*lease, error) {
	return c.request(ctx, "create", l)
}

func (c *Client) update(ctx context.Context, l *lease) (*lease, error) {
	return c.request(ctx, "update", l)
}

// Renew opens the fence of e as a renewal does.
func Renew(e *Elector) { e.fence.noteRenewal(e.now()) }

// Held returns what Status says without reading the clock.
func (e *Elector) Held() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}
