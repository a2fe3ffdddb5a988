package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// lease is a Lease (k8s.io/api/coordination/v1). Updates keep its metadata.
type lease struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   json.RawMessage `json:"metadata"`
	Spec       leaseSpec       `json:"spec"`
}

type leaseSpec struct {
	HolderIdentity       string            `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds int64             `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime,omitempty"`
	RenewTime            *metav1.MicroTime `json:"renewTime,omitempty"`
	LeaseTransitions     int64             `json:"leaseTransitions"`
	Strategy             string            `json:"strategy,omitempty"`
	PreferredHolder      string            `json:"preferredHolder,omitempty"`
}

// uid returns metadata.uid, which changes when the Lease is created again.
func (l *lease) uid() types.UID {
	var m struct {
		UID types.UID `json:"uid"`
	}
	if json.Unmarshal(l.Metadata, &m) != nil {
		return ""
	}
	return m.UID
}

// isEqual reports whether no elector has written the Lease between the two reads.
func (s *leaseSpec) isEqual(o *leaseSpec) bool {
	return s.HolderIdentity == o.HolderIdentity && s.LeaseDurationSeconds == o.LeaseDurationSeconds &&
		s.LeaseTransitions == o.LeaseTransitions &&
		s.AcquireTime.Equal(o.AcquireTime) && s.RenewTime.Equal(o.RenewTime)
}

// duration returns how long standbys wait after a renewal.
func (s *leaseSpec) duration() time.Duration {
	return time.Duration(s.LeaseDurationSeconds) * time.Second
}

// leases accesses the one Lease. update has the precondition that the Lease has not changed since l
// was read or written. Errors of the API server are those of apimachinery's api/errors.
type leases interface {
	get(ctx context.Context) (*lease, error)
	create(ctx context.Context, l *lease) (*lease, error)
	update(ctx context.Context, l *lease) (*lease, error)
}

// remoteLease implements leases with an API server.
type remoteLease struct {
	client          *rest.RESTClient
	namespace, name string
}

// newRemoteLease creates a separate client, so that requests of informers and the checkpoint cannot
// delay a renewal. The client uses HTTP/1.1: a request without a response ends its connection, and
// the next one opens another. With HTTP/2, the next request would use the dead connection again.
func newRemoteLease(config *rest.Config, namespace, name string) (*remoteLease, error) {
	c := dynamic.ConfigFor(config)
	c.AcceptContentTypes = "application/json"
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	c.GroupVersion = nil
	c.APIPath = "/"
	c.NextProtos = []string{"http/1.1"}
	if _, _, err := rest.DefaultServerUrlFor(c); err != nil {
		// err repeats it, which may hold a password
		return nil, errors.New("the API server's address is neither a URL nor host:port")
	}
	httpClient, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the Lease: %w", err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(c, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of the Lease: %w", err)
	}
	return &remoteLease{client: client, namespace: namespace, name: name}, nil
}

func (r *remoteLease) path() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + r.namespace + "/leases"
}

func (r *remoteLease) get(ctx context.Context) (*lease, error) {
	return r.do(ctx, r.client.Get().AbsPath(r.path()+"/"+r.name))
}

func (r *remoteLease) create(ctx context.Context, l *lease) (*lease, error) {
	metadata, err := json.Marshal(metav1.ObjectMeta{Namespace: r.namespace, Name: r.name})
	if err != nil {
		return nil, err
	}
	created := *l
	created.Metadata = metadata
	return r.write(ctx, r.client.Post().AbsPath(r.path()), &created)
}

func (r *remoteLease) update(ctx context.Context, l *lease) (*lease, error) {
	return r.write(ctx, r.client.Put().AbsPath(r.path()+"/"+r.name), l)
}

func (r *remoteLease) write(ctx context.Context, request *rest.Request, l *lease) (*lease, error) {
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	body, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return r.do(ctx, request.Body(body))
}

func (r *remoteLease) do(ctx context.Context, request *rest.Request) (*lease, error) {
	raw, err := request.MaxRetries(0).SetHeader("Accept", "application/json").
		SetHeader("Content-Type", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	l := new(lease)
	if err := json.Unmarshal(raw, l); err != nil {
		return nil, fmt.Errorf("the response is not a Lease: %w", err)
	}
	return l, nil
}

// isConflict reports whether another client has written the Lease, or created it again.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
