package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

type kind int

const (
	acked kind = iota
	refused
	tooLarge
	retried
	again  // retried without a count or a delay
	ended  // Run has ended
	fenced // this process must not publish any more
)

// outcome is the result of a request.
type outcome struct {
	kind   kind
	reason string        // retried: label of the metric
	detail string        // never a secret
	err    error         // fenced: it wraps ErrFenced
	shut   bool          // retried: the receiver accepts no requests; all wait
	wait   time.Duration // shut: the delay that the receiver asked for; 0 if it gave none
	cut    bool          // retried: the connection was closed without a response
	denied bool          // retried: 401, 403 or 404

	unasked bool // again: the receiver does not support Expect: 100-continue
}

// judgeAnswer classifies a response whose status is not 2xx.
func judgeAnswer(res *http.Response, text string, hidden []string) outcome {
	r := outcome{kind: retried, detail: fmt.Sprintf("status %d", res.StatusCode)}
	if text != "" {
		r.detail += ": " + text
	}
	switch s := res.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		r.reason, r.denied = publish.ReasonUnauthorized, true
	case s == http.StatusProxyAuthRequired:
		r.reason = publish.ReasonProxy
	case s == http.StatusNotFound:
		r.reason, r.denied = publish.ReasonNotFound, true
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		r.reason = publish.ReasonUnavailable
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		r.reason, r.shut = publish.ReasonUnavailable, true
		if s == http.StatusTooManyRequests {
			r.reason = publish.ReasonThrottled
		}
		r.wait, _ = retryAfter(res.Header, time.Now())
	case s == http.StatusRequestEntityTooLarge:
		r.kind = tooLarge
	case s >= 300 && s < 400:
		r.reason = publish.ReasonRedirect
		if to, err := url.Parse(res.Header.Get("Location")); err == nil && to.Host != "" {
			// Often a redirect to the same path with a slash.
			r.detail = fmt.Sprintf("status %d, to %s", s, clean(to.Scheme+"://"+to.Host, hidden))
		}
	case s >= 400 && s < 500:
		r.kind = refused
	case s >= 500 && s < 600:
		r.reason = publish.ReasonServerError
	default:
		r.reason = publish.ReasonUnexpected
	}
	return r
}

// judgeError classifies a request without a response.
func (c *client) judgeError(ctx context.Context, err error, hidden []string) outcome {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errSlow) {
		return outcome{kind: ended}
	}
	r := outcome{kind: retried, detail: publish.WithoutURL(err).Error()}
	op, timeout := new(net.OpError), net.Error(nil)
	isOp := errors.As(err, &op)
	switch {
	case isOp && (op.Op == "dial" || op.Op == "proxyconnect"):
		r.reason, r.shut = publish.ReasonConnection, true
	case isTLS(err), isOp && op.Op == "remote error":
		r.reason, r.shut = publish.ReasonTLS, true
	case ctx.Err() != nil:
		r.reason, r.detail = publish.ReasonTimeout, fmt.Sprintf("no answer within %s", c.timeout)
	case errors.As(err, &timeout) && timeout.Timeout():
		r.reason = publish.ReasonTimeout
	default:
		r.reason, r.cut = publish.ReasonCut, true
		// The text after a quotation mark is a response that is not HTTP; it may repeat the request.
		said, _, _ := strings.Cut(r.detail, ` "`)
		r.detail = clean(said, hidden)
	}
	return r
}

// isTLS reports whether err concerns certificates, including their files: RoundTrip returns the error of GetClientCertificate unchanged.
func isTLS(err error) bool {
	verify, record, authority := new(tls.CertificateVerificationError), tls.RecordHeaderError{}, x509.UnknownAuthorityError{}
	path, pair := new(fs.PathError), publish.PairError{}
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) || errors.As(err, &path) || errors.As(err, &pair)
}
