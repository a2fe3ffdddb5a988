package http

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	drainBytes = 64 << 10    // read at most this much of a response's body, so that the connection can be reused
	drainTime  = time.Second // timeout of that; after it, the connection is closed
	batchType  = "application/cloudevents-batch+json"

	// expectBytes is the size above which a request that was cut is repeated with Expect:
	// 100-continue. An event of that size can be shortened.
	expectBytes = encode.MaxShort
)

var errSlow = errors.New("no answer in time")

// request describes a request.
type request struct {
	method      string
	url         *url.URL
	contentType string
	attributes  []encode.Attribute
	body        payload
	own         bool // uses a new connection that no other request shares
	ask         bool // waits for the receiver's reaction to the header before it sends the body
}

// compose returns the request for the events.
func (ep *endpoint) compose(taken []*task) *request {
	t := taken[0]
	r := &request{method: http.MethodPost, url: ep.url, contentType: t.e.ContentType}
	if len(taken) == 1 {
		r.attributes, r.own = t.e.Attributes, t.needsOwnConnection()
		// A receiver that rejects a request by its length, without reading the rest, cuts the
		// connection, and its response is lost. With Expect: 100-continue, it can respond before
		// the body is sent.
		r.ask = r.own && len(t.e.Body) > expectBytes && !t.unasked
	}
	if !ep.batched || len(t.e.Attributes) > 0 {
		r.body.add(t.e.Body)
		return r
	}
	r.contentType = batchType // a receiver of batches may accept nothing else
	for i, t := range taken {
		r.body.add([]byte("[,"[min(i, 1):][:1]))
		r.body.add(t.e.Body)
	}
	r.body.add([]byte("]"))
	return r
}

// attempt is one of the requests that send r.
type attempt struct {
	own     bool          // uses a new connection that no other request shares
	ask     bool          // waits for the receiver's reaction to the header before it sends the body
	timeout time.Duration // to the status
}

// exchange sends one request and classifies the response.
func (c *client) exchange(ctx context.Context, r *request, a attempt) outcome {
	header, hidden, err := c.credentials.read()
	if err != nil {
		return outcome{
			kind:   retried,
			reason: publish.ReasonCredentials,
			detail: err.Error(),
			shut:   true,
		}
	}
	transport, err := c.links.pickTransport(a.own)
	if err != nil {
		return outcome{
			kind:   retried,
			reason: publish.ReasonTLS,
			detail: err.Error(),
			shut:   true,
		}
	}
	header = maps.Clone(header)
	setHeaders(header, r.contentType, r.attributes)
	if a.ask {
		header["Expect"] = []string{"100-continue"}
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(a.timeout, func() { cancel(errSlow) })
	defer timer.Stop()
	req := (&http.Request{
		Method:        r.method,
		URL:           r.url,
		Host:          r.url.Host,
		Header:        header,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		ContentLength: int64(r.body.size),
		Body:          r.body.reader(),
		// net/http calls it only if the receiver has certainly seen nothing of the request.
		GetBody: func() (io.ReadCloser, error) { return r.body.reader(), nil },
	}).WithContext(ctx)
	broken := c.fence.Broken()
	began := time.Now()
	res, err := transport.RoundTrip(req) // not Client.Do: no redirects, no cookies
	if err != nil && c.fence.Broken() != broken {
		// The closed fence broke this connection, or another one at the same time; an unnecessary
		// repetition does no harm.
		return outcome{kind: again}
	}
	if err != nil {
		return c.judgeError(ctx, err, a.timeout, hidden)
	}
	defer func() { _ = res.Body.Close() }()
	c.pace.note(res, time.Since(began))
	timer.Reset(drainTime)
	if res.StatusCode/100 == 2 {
		_, _ = io.CopyN(io.Discard, res.Body, drainBytes)
		return outcome{kind: acked, answered: true}
	}
	if a.ask && res.StatusCode == http.StatusExpectationFailed {
		return outcome{kind: again, unasked: true}
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, drainBytes))
	return judgeAnswer(res, excerpt(text, hidden, r.body.contains), hidden)
}

// setHeaders adds the headers of the HTTP binding (section 3.1): the content type and, in binary
// mode, the attributes. The content type replaces datacontenttype.
func setHeaders(header http.Header, contentType string, attributes []encode.Attribute) {
	values := make([]string, 1, 1+len(attributes))
	values[0] = contentType
	header["Content-Type"] = values[:1:1]
	var escaped []byte
	for i := range attributes {
		a := &attributes[i]
		if a.Name == "datacontenttype" {
			continue
		}
		// the same rule as in the NATS binding (section 3.1.3.2)
		escaped = publish.AppendHeaderValue(escaped[:0], a.Value)
		values = append(values, string(escaped))
		header[http.CanonicalHeaderKey(publish.AttributePrefix+a.Name)] = values[len(values)-
			1 : len(values) : len(values)]
	}
}

// payload is the body of a request: the bodies of its events, without a copy. After RoundTrip has
// returned, the transport may still read it, but a finished event is reused: detach ends the
// reading. Otherwise a receiver might get the beginning of one event and the end of another.
type payload struct {
	mu       sync.Mutex
	parts    [][]byte // nil after detach
	size     int
	lastRead time.Time
}

func (p *payload) add(part []byte) {
	p.parts = append(p.parts, part)
	p.size += len(part)
}

// contains reports whether one of the events contains text.
func (p *payload) contains(text []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.parts, func(part []byte) bool { return bytes.Contains(part, text) })
}

func (p *payload) detach() {
	p.mu.Lock()
	p.parts = nil
	p.mu.Unlock()
}

func (p *payload) reader() io.ReadCloser { return &payloadReader{p: p, left: p.size} }

type payloadReader struct {
	p    *payload
	part int // index of the current part
	read int // bytes already read of that part
	left int // bytes left of all parts
}

func (r *payloadReader) Read(b []byte) (n int, err error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	switch {
	case r.left == 0:
		return 0, io.EOF // also after detach: net/http reads once more after the last byte
	case r.p.parts == nil:
		return 0, io.ErrClosedPipe
	}
	r.p.lastRead = time.Now()
	for n < len(b) && r.left > 0 {
		part := r.p.parts[r.part]
		copied := copy(b[n:], part[r.read:])
		n += copied
		r.read += copied
		r.left -= copied
		if r.read == len(part) {
			r.part, r.read = r.part+1, 0
		}
	}
	return n, nil
}

func (*payloadReader) Close() error { return nil }
