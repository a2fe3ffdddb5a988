package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// watchReceiveBuffer bounds what the HTTP/2 client buffers, in bytes, for one watch that is not read. The Go client's
	// default of 4 MiB a stream would let 60 blocked watches hold 257 MB.
	watchReceiveBuffer = 256 << 10
	// uidTimeout bounds the request that all others wait for, should its connection be dead without a word.
	uidTimeout = 30 * time.Second
	// reviewTimeout bounds one access review.
	reviewTimeout = 30 * time.Second
)

// Client reads from one API server. It is safe for concurrent use.
type Client struct {
	Host      string // the URL, for people: without the password
	Discovery *discovery.DiscoveryClient

	lists    *rest.RESTClient
	watches  *rest.RESTClient
	watching *rest.Config // of watches
}

// New makes a client of a configuration, which it does not change. It connects to nothing.
func New(config *rest.Config) (*Client, error) {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, errors.New("the API server's address is neither a URL nor host:port") // err repeats it, which may hold a password
	}
	host := u.Redacted()
	lists := dynamic.ConfigFor(config)
	lists.AcceptContentTypes = JSON // whatever the feature gates say: the bytes are kept as they come
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

	c := &Client{Host: host, watching: watches}
	if c.lists, err = rest.UnversionedRESTClientForConfigAndClient(lists, listClient); err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	if c.watches, err = rest.UnversionedRESTClientForConfigAndClient(watches, watchClient); err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	if c.Discovery, err = discovery.NewDiscoveryClientForConfigAndClient(lists, listClient); err != nil {
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

// Watch opens an HTTP watch of a resource in a namespace ("": all). The caller reads and closes the body. A refusal is an API Status error.
func (c *Client) Watch(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions) (io.ReadCloser, error) {
	o.Watch = true
	return open(ctx, c.watches, r, namespace, JSON, o)
}

// WatchAlone is Watch on a connection of its own, which ends with the watch. It may lead to another API server behind the
// same address.
func (c *Client) WatchAlone(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions) (io.ReadCloser, error) {
	t := httpTransport(c.watches.Client.Transport)
	if t == nil {
		return c.Watch(ctx, r, namespace, o) // whose connections those are, only their owner knows
	}
	// Credentials, and client certificates that are rotated, stay as they are: the former are in the wrappers, which are made
	// anew, the latter in TLSClientConfig and DialContext.
	t = t.Clone()
	t.DisableKeepAlives = true
	// A clone hands its HTTP/2 connections to the pool of the original, until it gets one of its own here.
	rt, err := rest.HTTPWrappersForConfig(c.watching, utilnet.SetTransportDefaults(t))
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", c.Host, err)
	}
	alone, err := rest.UnversionedRESTClientForConfigAndClient(c.watching, &http.Client{Transport: rt})
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", c.Host, err)
	}
	o.Watch = true
	return open(ctx, alone, r, namespace, JSON, o)
}

// open sends a request for a list or a watch, and returns the body of its answer.
func open(ctx context.Context, c *rest.RESTClient, r *object.Resource, namespace, accept string, o metav1.ListOptions) (io.ReadCloser, error) {
	return c.Get().AbsPath(path(r, namespace)).SetHeader("Accept", accept).
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, parameters()).Stream(ctx)
}

// ClusterUID is the uid of namespace kube-system, which lives as long as the cluster.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	result := c.lists.Get().AbsPath("/api/v1/namespaces/kube-system").SetHeader("Accept", JSON).Timeout(uidTimeout).Do(ctx)
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

// Allowed asks whether the client's user may use a verb on a resource in a namespace ("": in all), by a SelfSubjectAccessReview. Where
// reviews are refused for good, the answer is no. The error may pass.
func (c *Client) Allowed(ctx context.Context, r *object.Resource, namespace, verb string) (bool, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{
			"verb": verb, "group": r.Group, "resource": r.Name, "namespace": namespace,
		}},
	})
	if err != nil {
		return false, fmt.Errorf("review access to %s: %w", r.String(), err)
	}
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	result := c.lists.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").SetHeader("Accept", JSON).
		SetHeader("Content-Type", JSON).Timeout(reviewTimeout).Body(body).Do(ctx)
	raw, err := result.Raw()
	if err != nil {
		err = result.Error()
	}
	switch {
	case err == nil:
		err = json.Unmarshal(raw, &review)
	case IsPermanent(err):
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("review access to %s in namespace %q: %w", r.String(), namespace, err)
	}
	return review.Status.Allowed, nil
}
