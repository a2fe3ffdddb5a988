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
	again  // retried, but neither counted nor waited for
	ended  // Run has ended
	fenced // this process may not publish any more
)

// outcome is what became of a request.
type outcome struct {
	kind   kind
	reason string        // retried: label of the metric
	detail string        // never a secret
	err    error         // fenced: it wraps ErrFenced
	shut   bool          // retried: the receiver takes no requests; all wait
	wait   time.Duration // shut: as long as the receiver asks for; 0: it does not say
	cut    bool          // retried: the connection was closed without an answer
	denied bool          // retried: 401, 403 or 404

	unasked bool // again: the receiver does not know requests that ask before they send their body
}

// judgeAnswer returns what a status other than 2xx means.
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
			// Often to the path that was asked for, with a slash.
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

// judgeError returns what a request without an answer means.
func (p *endpoint) judgeError(ctx context.Context, err error, hidden []string) outcome {
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
		r.reason, r.detail = publish.ReasonTimeout, fmt.Sprintf("no answer within %s", p.timeout)
	case errors.As(err, &timeout) && timeout.Timeout():
		r.reason = publish.ReasonTimeout
	default:
		r.reason, r.cut = publish.ReasonCut, true
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
	path, pair := new(fs.PathError), new(publish.PairError)
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) || errors.As(err, &path) || errors.As(err, &pair)
}
