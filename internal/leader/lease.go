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

// lease is a Lease as the API server has it (k8s.io/api/coordination/v1). What others put into its metadata stays.
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

// uid is another one for each Lease that was created.
func (l *lease) uid() types.UID {
	var m struct {
		UID types.UID `json:"uid"`
	}
	if json.Unmarshal(l.Metadata, &m) != nil {
		return ""
	}
	return m.UID
}

// equal tells if nobody has written a between the two looks at it.
func (s *leaseSpec) equal(o *leaseSpec) bool {
	return s.HolderIdentity == o.HolderIdentity && s.LeaseDurationSeconds == o.LeaseDurationSeconds && s.LeaseTransitions == o.LeaseTransitions &&
		s.AcquireTime.Equal(o.AcquireTime) && s.RenewTime.Equal(o.RenewTime)
}

// duration is for how long after a renewal others keep away from it.
func (s *leaseSpec) duration() time.Duration {
	return time.Duration(s.LeaseDurationSeconds) * time.Second
}

// leases is the one Lease on the API server. update writes on condition that nobody has since l was read or written. Errors
// are those of apimachinery's api/errors, where the server answers.
type leases interface {
	get(ctx context.Context) (*lease, error)
	create(ctx context.Context, l *lease) (*lease, error)
	update(ctx context.Context, l *lease) (*lease, error)
}

// remoteLease is on a real API server.
type remoteLease struct {
	client          *rest.RESTClient
	namespace, name string
}

// newRemoteLease returns a client of its own: what informers and checkpoint ask for must not hold up a renewal. It speaks HTTP/1.1:
// a request that gets no answer takes its connection with it, and the next one finds out whether another does better, where with
// HTTP/2 it would go out on the dead one.
func newRemoteLease(config *rest.Config, namespace, name string) (*remoteLease, error) {
	c := dynamic.ConfigFor(config)
	c.AcceptContentTypes = "application/json"
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	c.GroupVersion = nil
	c.APIPath = "/"
	c.NextProtos = []string{"http/1.1"}
	if _, _, err := rest.DefaultServerUrlFor(c); err != nil {
		return nil, errors.New("the API server's address is neither a URL nor host:port") // err repeats it, which may hold a password
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
	raw, err := request.MaxRetries(0).SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	l := new(lease)
	if err := json.Unmarshal(raw, l); err != nil {
		return nil, fmt.Errorf("the answer is no Lease: %w", err)
	}
	return l, nil
}

// isConflict tells that somebody else has written the Lease, or a Lease of that name that is not the one that was read.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
