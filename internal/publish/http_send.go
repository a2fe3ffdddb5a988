package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
)

const (
	drainBytes = 64 << 10    // of an answer's body that are read, so that the connection can be used again
	drainTime  = time.Second // for that; a slower one costs the connection
	errorBytes = 200         // of it that an error quotes
	batchType  = "application/cloudevents-batch+json"

	// expectBytes is the size above which a request that was cut asks before it sends its body. An event of that size can be
	// shortened.
	expectBytes = encode.MaxShort
)

var errSlow = errors.New("no answer in time")

type httpKind int

const (
	httpAcked httpKind = iota
	httpRefused
	httpTooLarge
	httpRetry
	httpAgain  // a retry that is neither counted nor waited for
	httpEnded  // ctx has ended
	httpFenced // this process may not publish any more
)

// httpResult is what became of a request.
type httpResult struct {
	kind   httpKind
	reason string        // httpRetry: label of the metric
	status int           // 0: no answer
	detail string        // never a secret
	err    error         // httpFenced: it wraps ErrFenced
	shut   bool          // httpRetry: it is about the receiver, not about this request; all wait
	wait   time.Duration // shut: as long as the receiver asks for; 0: it does not say
	own    bool          // the connection was the request's own
	alone  bool          // the event is to go without others from now on: the request held some
	cut    bool          // that was closed without an answer
}

// post sends a request and judges the answer. own: on a new connection that no other request shares. ask: the body is sent
// once the receiver has seen the header.
func (h *HTTP) post(ctx context.Context, contentType string, attributes []encode.Attribute, body []byte, own, ask bool) httpResult {
	r := h.exchange(ctx, contentType, attributes, body, own, ask)
	r.own = own
	h.noteHealth(r.kind)
	return r
}

func (h *HTTP) exchange(ctx context.Context, contentType string, attributes []encode.Attribute, body []byte, own, ask bool) httpResult {
	header, hidden, err := h.credentials.read()
	if err != nil {
		return httpResult{kind: httpRetry, reason: ReasonCredentials, detail: err.Error(), shut: true}
	}
	transport, err := h.links.pick(own)
	if err != nil {
		return httpResult{kind: httpRetry, reason: ReasonTLS, detail: err.Error(), shut: true}
	}
	header = maps.Clone(header)
	setHeaders(header, contentType, attributes)
	if ask {
		header["Expect"] = []string{"100-continue"}
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.life, func() { cancel(ErrClosed) })()
	timer := time.AfterFunc(h.cfg.Timeout, func() { cancel(errSlow) })
	defer timer.Stop()
	p := &payload{b: body}
	req := (&http.Request{
		Method: http.MethodPost, URL: h.endpoint, Host: h.endpoint.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: p.reader(),
		// net/http uses it only where the receiver has surely seen nothing of the request.
		GetBody: func() (io.ReadCloser, error) { return p.reader(), nil },
	}).WithContext(ctx)
	broken := h.fence.Broken()
	res, err := transport.RoundTrip(req) // not Client.Do: no redirects, no cookies
	p.detach()
	if err != nil && h.fence.Broken() != broken {
		// By ourselves, since the fence was shut: this connection, or another one at the same time, which does no harm.
		return httpResult{kind: httpAgain}
	}
	if err != nil {
		return h.judgeError(ctx, err, hidden)
	}
	defer func() { _ = res.Body.Close() }()
	if own {
		h.cuts.fine.Add(1)
	}
	if res.ProtoMajor > 1 {
		h.multiplexed.Store(true)
	}
	timer.Reset(drainTime)
	if res.StatusCode/100 == 2 {
		h.denials.fine.Add(1)
		_, _ = io.CopyN(io.Discard, res.Body, drainBytes)
		return httpResult{kind: httpAcked, status: res.StatusCode}
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, drainBytes))
	return judgeAnswer(res, excerpt(text, hidden, body), hidden)
}

// postBatch sends what take gives, once the receiver may be asked.
func (h *HTTP) postBatch(ctx context.Context, take func() (body []byte, events int)) httpResult {
	pass, ok := h.throttle.enter(ctx)
	if !ok {
		return httpResult{kind: httpEnded}
	}
	r := httpResult{kind: httpEnded}
	if shut := h.blocked(ctx); shut != nil {
		r = *shut
		if r.kind == httpFenced {
			take() // they have to hear of it
		}
	} else if body, events := take(); events > 0 {
		r = h.post(ctx, batchType, nil, body, h.control(), false)
	}
	h.throttle.leave(pass, &r)
	return r
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
		escaped = AppendHeaderValue(escaped[:0], a.Value) // the HTTP binding's rule is NATS' (section 3.1.3.2)
		values = append(values, string(escaped))
		header[http.CanonicalHeaderKey(AttributePrefix+a.Name)] = values[len(values)-1 : len(values) : len(values)]
	}
}

// judgeAnswer tells what a status other than 2xx means.
func judgeAnswer(res *http.Response, text string, hidden []string) httpResult {
	r := httpResult{kind: httpRetry, status: res.StatusCode, detail: fmt.Sprintf("status %d", res.StatusCode)}
	if text != "" {
		r.detail += ": " + text
	}
	switch s := res.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		r.reason = ReasonUnauthorized
	case s == http.StatusProxyAuthRequired:
		r.reason = ReasonProxy
	case s == http.StatusNotFound:
		r.reason = ReasonNotFound
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		r.reason = ReasonUnavailable
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		r.reason, r.shut = ReasonUnavailable, true
		if s == http.StatusTooManyRequests {
			r.reason = ReasonThrottled
		}
		r.wait, _ = retryAfter(res.Header, time.Now())
	case s == http.StatusRequestEntityTooLarge:
		r.kind = httpTooLarge
	case s >= 300 && s < 400:
		r.reason = ReasonRedirect
		if to, err := url.Parse(res.Header.Get("Location")); err == nil && to.Host != "" {
			// Often to the path that was asked for, with a slash.
			r.detail = fmt.Sprintf("status %d, to %s", s, clean(to.Scheme+"://"+to.Host, hidden))
		}
	case s >= 400 && s < 500:
		r.kind = httpRefused
	case s >= 500 && s < 600:
		r.reason = ReasonServerError
	default:
		r.reason = ReasonUnexpected
	}
	return r
}

// judgeError tells what a request without an answer means.
func (h *HTTP) judgeError(ctx context.Context, err error, hidden []string) httpResult {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errSlow) {
		return httpResult{kind: httpEnded}
	}
	r := httpResult{kind: httpRetry, detail: WithoutURL(err).Error()}
	op, timeout := new(net.OpError), net.Error(nil)
	isOp := errors.As(err, &op)
	switch {
	case isOp && (op.Op == "dial" || op.Op == "proxyconnect"):
		r.reason, r.shut = ReasonConnection, true
	case isTLS(err), isOp && op.Op == "remote error":
		r.reason, r.shut = ReasonTLS, true
	case ctx.Err() != nil:
		r.reason, r.detail = ReasonTimeout, fmt.Sprintf("no answer within %s", h.cfg.Timeout)
	case errors.As(err, &timeout) && timeout.Timeout():
		r.reason = ReasonTimeout
	default:
		r.reason, r.cut = ReasonCut, true
		// Behind a quotation mark: an answer that is no HTTP, perhaps what was sent.
		said, _, _ := strings.Cut(r.detail, ` "`)
		r.detail = clean(said, hidden)
	}
	return r
}

// isTLS reports whether err is about certificates, those of the files included: what GetClientCertificate returns comes
// back as it is.
func isTLS(err error) bool {
	verify, record, authority := new(tls.CertificateVerificationError), tls.RecordHeaderError{}, x509.UnknownAuthorityError{}
	path, pair := new(fs.PathError), new(PairError)
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) || errors.As(err, &path) || errors.As(err, &pair)
}

// payload is the body of a request. RoundTrip may return while the transport still reads it, and who published may then
// write over it: detach ends that reading. Else, a receiver might be sent the beginning of one event and the end of
// another.
type payload struct {
	mu       sync.Mutex
	b        []byte
	detached bool
}

func (p *payload) detach() {
	p.mu.Lock()
	p.detached, p.b = true, nil
	p.mu.Unlock()
}

func (p *payload) reader() io.ReadCloser { return &payloadReader{p: p, left: len(p.b)} }

type payloadReader struct {
	p    *payload
	left int
}

func (r *payloadReader) Read(b []byte) (int, error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	switch {
	case r.left == 0:
		return 0, io.EOF // also when detached: net/http asks once more behind the last byte
	case r.p.detached:
		return 0, io.ErrClosedPipe
	}
	n := copy(b, r.p.b[len(r.p.b)-r.left:])
	r.left -= n
	return n, nil
}

func (*payloadReader) Close() error { return nil }
