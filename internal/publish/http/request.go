package http

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	drainBytes = 64 << 10    // of an answer's body that are read, so that the connection can be used again
	drainTime  = time.Second // for that; a slower answer costs the connection
	batchType  = "application/cloudevents-batch+json"

	// expectBytes is the size above which a request that was cut asks before it sends its body. An event of that size can be
	// shortened.
	expectBytes = encode.MaxShort
)

var errSlow = errors.New("no answer in time")

// request is what is sent.
type request struct {
	contentType string
	attributes  []encode.Attribute
	body        payload
	own         bool // on a new connection that no other request shares
	ask         bool // the body is sent after the receiver has seen the header
}

// compose makes the request of some events.
func (p *endpoint) compose(taken []*task) *request {
	t := taken[0]
	r := &request{contentType: t.e.ContentType}
	if len(taken) == 1 {
		r.attributes, r.own = t.e.Attributes, t.ownConnection()
		// A receiver that refuses a request by its length and does not read the rest cuts the connection, and its answer is lost with
		// it. It can answer if it is asked before the body is sent.
		r.ask = r.own && len(t.e.Body) > expectBytes && !t.unasked
	}
	if !p.batched || len(t.e.Attributes) > 0 {
		r.body.add(t.e.Body)
		return r
	}
	r.contentType = batchType // a receiver of batches may take nothing else
	for i, t := range taken {
		r.body.add([]byte("[,"[min(i, 1):][:1]))
		r.body.add(t.e.Body)
	}
	r.body.add([]byte("]"))
	return r
}

// post sends a request and judges the answer.
func (p *endpoint) post(r *request) outcome {
	header, hidden, err := p.credentials.read()
	if err != nil {
		return outcome{kind: retried, reason: publish.ReasonCredentials, detail: err.Error(), shut: true}
	}
	transport, err := p.links.pick(r.own)
	if err != nil {
		return outcome{kind: retried, reason: publish.ReasonTLS, detail: err.Error(), shut: true}
	}
	header = maps.Clone(header)
	setHeaders(header, r.contentType, r.attributes)
	if r.ask {
		header["Expect"] = []string{"100-continue"}
	}

	ctx, cancel := context.WithCancelCause(p.life)
	defer cancel(nil)
	timer := time.AfterFunc(p.timeout, func() { cancel(errSlow) })
	defer timer.Stop()
	req := (&http.Request{
		Method: http.MethodPost, URL: p.url, Host: p.url.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(r.body.size), Body: r.body.reader(),
		// net/http uses it only if the receiver has certainly seen nothing of the request.
		GetBody: func() (io.ReadCloser, error) { return r.body.reader(), nil },
	}).WithContext(ctx)
	broken := p.fence.Broken()
	res, err := transport.RoundTrip(req) // not Client.Do: no redirects, no cookies
	defer r.body.detach()
	if err != nil && p.fence.Broken() != broken {
		// By ourselves, because the fence was shut: this connection, or another one at the same time, which does no harm.
		return outcome{kind: again}
	}
	if err != nil {
		return p.judgeError(ctx, err, hidden)
	}
	defer func() { _ = res.Body.Close() }()
	timer.Reset(drainTime)
	if res.StatusCode/100 == 2 {
		_, _ = io.CopyN(io.Discard, res.Body, drainBytes)
		return outcome{kind: acked}
	}
	if r.ask && res.StatusCode == http.StatusExpectationFailed {
		return outcome{kind: again, unasked: true}
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, drainBytes))
	return judgeAnswer(res, excerpt(text, hidden, r.body.contains), hidden)
}

// setHeaders adds the headers of the HTTP binding (section 3.1): the content type, and in binary mode the attributes.
// datacontenttype is the content type there.
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
		escaped = publish.AppendHeaderValue(escaped[:0], a.Value) // the HTTP binding's rule is NATS' (section 3.1.3.2)
		values = append(values, string(escaped))
		header[http.CanonicalHeaderKey(publish.AttributePrefix+a.Name)] = values[len(values)-1 : len(values) : len(values)]
	}
}
