package informers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/object"
)

// watchReceiveBuffer bounds what the HTTP/2 client buffers, in bytes, for one watch that is not read. The Go client's
// default of 4 MiB a stream would let 60 blocked watches hold 257 MB.
const watchReceiveBuffer = 256 << 10

// uidTimeout bounds the request that all others wait for, should its connection be dead without a word.
const uidTimeout = 30 * time.Second

const (
	// pageSilence is how long a page of a list may bring nothing. A kube-apiserver ends a list by itself after 60 s (--request-timeout), so
	// its own words come first.
	pageSilence = 150 * time.Second
	// pageWithin is how long a page may take in all: 500 objects of the largest size that etcd takes by default, at 3 MB/s.
	pageWithin = 5 * time.Minute
)

// errSlow ends the request for a page that takes too long, although something comes.
var errSlow = errors.New("the API server does not come to an end")

// client reads raw JSON from an API server. Lists and watches have transports of their own, so that the small receive
// buffer of watches does not slow lists down.
type client struct {
	host      string // the URL, for people: without the password
	lists     *rest.RESTClient
	watches   *rest.RESTClient
	watching  *rest.Config // of watches
	discovery *discovery.DiscoveryClient
}

func newClient(config *rest.Config) (*client, error) {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, errors.New("the API server's address is neither a URL nor host:port") // err repeats it, which may hold a password
	}
	host := u.Redacted()
	lists := dynamic.ConfigFor(config)
	lists.AcceptContentTypes = "application/json" // whatever the feature gates say: the bytes are kept as they come
	// Flow is bounded by the queue and by API Priority and Fairness; a client-side limit would only delay watches
	// that are opened again.
	lists.QPS = -1
	// Warnings come with every response of a deprecated API: client-go would log each of them.
	lists.WarningHandler = rest.NoWarnings{}
	lists.GroupVersion = nil
	lists.APIPath = "/"
	listClient, err := rest.HTTPClientFor(lists)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}

	watches := rest.CopyConfig(lists)
	// Compression of a watch would only delay its frames. Set, it also gives the watches a transport of their own in
	// client-go's cache, which is what makes the next lines safe (where a kubeconfig disables compression altogether, both
	// share one, and lists have the small buffer too).
	watches.DisableCompression = true
	watches.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		if t := httpTransport(rt); t != nil && t != http.DefaultTransport && t.HTTP2 == nil {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: watchReceiveBuffer}
		}
		return rt
	})
	watchClient, err := rest.HTTPClientFor(watches)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}

	c := &client{host: host, watching: watches}
	if c.lists, err = rest.UnversionedRESTClientForConfigAndClient(lists, listClient); err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	if c.watches, err = rest.UnversionedRESTClientForConfigAndClient(watches, watchClient); err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(lists, listClient); err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	return c, nil
}

// httpTransport finds the *http.Transport beneath client-go's wrappers, nil where there is none (a custom dialer's
// transport: then the default receive buffer applies).
func httpTransport(rt http.RoundTripper) *http.Transport {
	for {
		switch t := rt.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}

// path is the URL path of a resource, in one namespace or ("") in all.
func path(r *object.Resource, namespace string) string {
	p := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		p = "/api/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.Name
}

// list opens one page; the body is the caller's to read and to close. A refusal is an API Status error.
func (c *client) list(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions) (io.ReadCloser, error) {
	return limited(ctx, func(ctx context.Context) (io.ReadCloser, error) { return stream(ctx, c.lists, r, namespace, o) })
}

// limited opens a page that has time limits: pageSilence for its first byte, and for each after it, and pageWithin for all. Time in which
// the caller does not read counts against the second alone.
func limited(ctx context.Context, open func(ctx context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	ctx, end := context.WithCancelCause(ctx)
	p := &page{
		ctx: ctx, end: end,
		silence: time.AfterFunc(pageSilence, func() { end(fmt.Errorf("%w for %v", errSilent, pageSilence)) }),
		within:  time.AfterFunc(pageWithin, func() { end(fmt.Errorf("%w within %v", errSlow, pageWithin)) }),
	}
	body, err := open(ctx)
	p.silence.Stop()
	if err != nil {
		err = p.why(err)
		p.stop()
		return nil, err
	}
	p.body = body
	return p, nil
}

// page is the body of a page with time limits.
type page struct {
	ctx             context.Context //nolint:containedctx // of the request, whose body outlives the call that made it
	end             context.CancelCauseFunc
	silence, within *time.Timer
	body            io.ReadCloser
}

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	p.silence.Reset(pageSilence)
	n, err := p.body.Read(b)
	p.silence.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = p.why(err)
	}
	return n, err
}

// Close implements io.Closer.
func (p *page) Close() error {
	p.stop()
	return p.body.Close()
}

func (p *page) stop() {
	p.silence.Stop()
	p.within.Stop()
	p.end(nil)
}

// why is err, or the limit that has caused it.
func (p *page) why(err error) error {
	if cause := context.Cause(p.ctx); errors.Is(cause, errSilent) || errors.Is(cause, errSlow) {
		return cause
	}
	return err
}

// watch opens an HTTP watch; the body is the caller's to read and to close. A refusal is an API Status error.
func (c *client) watch(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions) (io.ReadCloser, error) {
	o.Watch = true
	return stream(ctx, c.watches, r, namespace, o)
}

// watchAlone is watch on a connection of its own, which ends with the watch. It may lead to another API server behind the
// same address.
func (c *client) watchAlone(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions) (io.ReadCloser, error) {
	t := httpTransport(c.watches.Client.Transport)
	if t == nil {
		return c.watch(ctx, r, namespace, o) // whose connections those are, only their owner knows
	}
	// Credentials, and client certificates that are rotated, stay as they are: the former are in the wrappers, which are made
	// anew, the latter in TLSClientConfig and DialContext.
	t = t.Clone()
	t.DisableKeepAlives = true
	// A clone hands its HTTP/2 connections to the pool of the original, until it gets one of its own here.
	rt, err := rest.HTTPWrappersForConfig(c.watching, utilnet.SetTransportDefaults(t))
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", c.host, err)
	}
	alone, err := rest.UnversionedRESTClientForConfigAndClient(c.watching, &http.Client{Transport: rt})
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", c.host, err)
	}
	o.Watch = true
	return stream(ctx, alone, r, namespace, o)
}

func stream(ctx context.Context, c *rest.RESTClient, r *object.Resource, namespace string, o metav1.ListOptions) (io.ReadCloser, error) {
	return c.Get().AbsPath(path(r, namespace)).
		SetHeader("Accept", "application/json").
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Stream(ctx)
}

// clusterUID is the uid of namespace kube-system, which lives as long as the cluster.
func (c *client) clusterUID(ctx context.Context) (string, error) {
	result := c.lists.Get().AbsPath("/api/v1/namespaces/kube-system").SetHeader("Accept", "application/json").Timeout(uidTimeout).Do(ctx)
	raw, err := result.Raw()
	if err != nil {
		err = result.Error() // with what the API server says in the body
		return "", fmt.Errorf("read namespace kube-system, whose uid names the cluster (the agent needs get on it): %w", err)
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &ns); err != nil {
		return "", fmt.Errorf("read namespace kube-system, whose uid names the cluster: %w", err)
	}
	return string(ns.UID), nil
}
