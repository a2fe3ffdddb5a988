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

// Client is a way to a server. Before is called with each request, before it is carried out, and may fail it; After may lose its
// answer. Both may block.
type Client struct {
	Server        *Server
	Before, After func(ctx context.Context, verb string) error
}

// NewWith is New with a stand-in for the API server, and other clocks.
func NewWith(o Options, c *Client, now func() Instant) *Elector {
	if now == nil {
		return newElector(o, c, systemClock())
	}
	return newElector(o, c, now)
}

// Open tells if the fence would let pass, by what now says instead of its own clock.
func (f *Fence) Open(now Instant) bool {
	renewed := f.renewed.Load()
	return renewed != nil && f.validAt(now, renewed)
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// Spec is what the Lease says; nil: there is none.
func (s *Server) Spec() *Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil
	}
	spec := s.lease.Spec
	return &spec
}

// Writes are all specs that were written by electors.
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

// Edit changes the Lease as kubectl does; nil: only its metadata.
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
		return nil, apierrors.NewConflict(resource(), "kubecdc", nil) // Leases are created by an update, but not where it names another uid
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
		s.transcript = append(s.transcript, fmt.Sprintf("%s %s uid %d %q transitions %d %ds", time.Now().Format("04:05.000"), verb, s.uid,
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
func Renew(e *Elector) { e.fence.renew(e.now()) }

// Held is what Status says without a look at the clock.
func (e *Elector) Held() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}
