package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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
	// watchReceiveBuffer limits the bytes that the HTTP/2 client buffers for one watch that is not
	// read. With Go's default of 4 MiB, 60 blocked watches would hold 257 MB.
	watchReceiveBuffer = 256 << 10
	// watchReadBuffer is the size of a read from a connection of watches. net/http reads 4 KiB at a
	// time and crypto/tls each record in two reads, so that a frame costs two system calls. HTTP/2
	// has one such connection for all watches, HTTP/1.1 one for each.
	watchReadBuffer = 32 << 10
	// answerWithin limits each request other than lists and watches, with the body of its response.
	// A server may keep a request on a live connection.
	answerWithin = 30 * time.Second
)

// Client reads from one API server. It is safe for concurrent use.
type Client struct {
	Host      string                     // the URL for messages, without the password
	Discovery *discovery.DiscoveryClient // each of its requests has answerWithin

	asks     *rest.RESTClient // requests other than lists and watches: each has answerWithin
	lists    *rest.RESTClient
	watches  *rest.RESTClient
	watching *rest.Config // of watches
	missing  missing
}

// New returns a client. It does not connect, and does not change config.
func New(config *rest.Config) (*Client, error) {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		// err repeats it, which may hold a password
		return nil, errors.New("the API server's address is neither a URL nor host:port")
	}
	host := u.Redacted()
	lists := dynamic.ConfigFor(config)
	lists.AcceptContentTypes = JSON // regardless of feature gates, because the bytes are kept unchanged
	// The queue and API Priority and Fairness limit the requests. A limit in the client would only
	// delay reopened watches.
	lists.QPS = -1
	// client-go would log a warning for each response of a deprecated API.
	lists.WarningHandler = rest.NoWarnings{}
	lists.GroupVersion = nil
	lists.APIPath = "/"
	watches := rest.CopyConfig(lists)
	// Compression would only delay the frames of a watch. This setting also gives watches their own
	// transport in client-go's cache, so that the next lines do not change that of lists. If a
	// kubeconfig disables compression, both share one, with the small buffer.
	watches.DisableCompression = true
	watches.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		if t := httpTransport(rt); t != nil && t != http.DefaultTransport && t.HTTP2 == nil {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: watchReceiveBuffer}
			if t.DialContext != nil {
				t.DialContext = buffered(t.DialContext)
			}
		}
		return rt
	})
	c := &Client{Host: host, watching: watches}
	c.lists, err = rest.UnversionedRESTClientFor(lists)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	c.watches, err = rest.UnversionedRESTClientFor(watches)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	// The connections are those of lists. Package discovery sets a limit only in a client of its
	// own.
	limited := &http.Client{Transport: tagged{c.lists.Client.Transport}, Timeout: answerWithin}
	c.asks, err = rest.UnversionedRESTClientForConfigAndClient(lists, limited)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	c.Discovery, err = discovery.NewDiscoveryClientForConfigAndClient(lists, limited)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", host, err)
	}
	return c, nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// buffered returns dial with connections that are read in pieces of watchReadBuffer.
func buffered(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &bufferedConn{Conn: c, r: bufio.NewReaderSize(c, watchReadBuffer)}, nil
	}
}

// bufferedConn is a connection that is read through a buffer. Like that of net/http, the buffer is
// not touched by Close and deadlines.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// httpTransport returns the *http.Transport inside client-go's wrappers, nil if there is none. A
// custom transport keeps its default receive buffer.
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

// watchClient returns the client for a watch. alone: on its own connection, which ends with the
// watch.
func (c *Client) watchClient(alone bool) (*rest.RESTClient, error) {
	t := httpTransport(c.watches.Client.Transport)
	if !alone || t == nil { // the connections of a custom transport cannot be separated
		return c.watches, nil
	}
	// Credentials and rotated client certificates keep working. The former are in the wrappers,
	// which are made again; the latter are in TLSClientConfig and DialContext.
	t = t.Clone()
	t.DisableKeepAlives = true
	// SetTransportDefaults gives the clone its own HTTP/2 connection pool. Until then it shares
	// that of the original.
	rt, err := rest.HTTPWrappersForConfig(c.watching, utilnet.SetTransportDefaults(t))
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", c.Host, err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(c.watching, &http.Client{Transport: rt})
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", c.Host, err)
	}
	return client, nil
}

// ClusterUID returns the uid of namespace kube-system, which identifies the cluster.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	var ns metav1.PartialObjectMetadata
	if err := decode(c.asks.Get().AbsPath("/api/v1/namespaces/kube-system").SetHeader("Accept", JSON).Do(ctx),
		&ns); err != nil {
		return "",
			fmt.Errorf("read namespace kube-system, whose uid names the cluster (the agent needs get on it): %w", err)
	}
	return string(ns.UID), nil
}

// decode decodes the JSON of a response.
func decode(result rest.Result, into any) error {
	raw, err := result.Raw()
	if err != nil {
		return result.Error() // with the message in the body
	}
	return json.Unmarshal(raw, into)
}

// Allowed reports whether the client's user may use a verb on a resource in a namespace ("": all),
// by a SelfSubjectAccessReview. It returns false if reviews are refused permanently. After an
// error, another attempt may succeed.
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
	err = decode(c.asks.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Accept", JSON).
		SetHeader("Content-Type", JSON).Body(body).Do(ctx), &review)
	if err != nil && !IsPermanent(err) {
		return false, fmt.Errorf("review access to %s in namespace %q: %w", r.String(), namespace, err)
	}
	return err == nil && review.Status.Allowed, nil
}
