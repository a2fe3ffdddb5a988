package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

	answered bool // there was a response
	copies   int  // sent because the request was overdue
	unasked  bool // again: the receiver does not support Expect: 100-continue
}

// judgeAnswer classifies a response whose status is not 2xx.
func judgeAnswer(res *http.Response, text string, hidden []string) outcome {
	r := outcome{kind: retried, answered: true, detail: fmt.Sprintf("status %d", res.StatusCode)}
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
func (c *client) judgeError(ctx context.Context, err error, timeout time.Duration, hidden []string) outcome {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errSlow) {
		return outcome{kind: ended}
	}
	r := outcome{kind: retried, detail: publish.WithoutURL(err).Error()}
	op, late := new(net.OpError), net.Error(nil)
	isOp := errors.As(err, &op)
	switch {
	case isOp && (op.Op == "dial" || op.Op == "proxyconnect"):
		r.reason, r.shut = publish.ReasonConnection, true
	case isTLS(err), isOp && op.Op == "remote error":
		r.reason, r.shut = publish.ReasonTLS, true
	case ctx.Err() != nil:
		r.reason, r.detail = publish.ReasonTimeout, fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &late) && late.Timeout():
		r.reason = publish.ReasonTimeout
	default:
		r.reason, r.cut = publish.ReasonCut, true
		// The text after a quotation mark is a response that is not HTTP; it may repeat the
		// request.
		said, _, _ := strings.Cut(r.detail, ` "`)
		r.detail = clean(said, hidden)
	}
	return r
}

// isTLS reports whether err concerns certificates, including their files: RoundTrip returns the
// error of GetClientCertificate unchanged.
func isTLS(err error) bool {
	verify := new(tls.CertificateVerificationError)
	record := tls.RecordHeaderError{}
	authority := x509.UnknownAuthorityError{}
	path, pair := new(fs.PathError), publish.PairError{}
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) || errors.As(err, &path) ||
		errors.As(err, &pair)
}

// judgeEvent decides about an event after a request with that many events: either it is repeated,
// or it ends with err.
func (ep *endpoint) judgeEvent(t *task, o *outcome, events int) (repeat bool, err error) {
	switch o.kind {
	case acked:
		return false, nil
	case ended:
		return false, publish.ErrClosed
	case fenced:
		return false, fmt.Errorf("publish %s to %s: %w", t.e.ID, ep.origin, o.err)
	case again:
		t.unasked = t.unasked || o.unasked
		return true, nil
	case refused, tooLarge:
		if events > 1 { // perhaps only one of them is refused
			t.single = true
			return true, nil
		}
		why := publish.ErrRefused
		if o.kind == tooLarge {
			why = publish.ErrTooLarge
		}
		return false, fmt.Errorf("publish %s to %s: %w: %s", t.e.ID, ep.origin, why, o.detail)
	case retried:
	}
	repeat, alone := t.retry(o, events)
	ep.noteRetry(t, o, alone)
	if repeat {
		t.e.Retried(o.reason)
		return true, nil
	}
	return false, &publish.RetryError{
		Reason: o.reason, Alone: alone, Err: fmt.Errorf("publish %s to %s: %s", t.e.ID, ep.origin, o.detail),
	}
}

// retry reports whether the event is repeated at once, or as soon as the throttle permits.
// Otherwise, alone reports whether it is to be sent alone.
func (t *task) retry(o *outcome, events int) (repeat, alone bool) {
	cut, denied := t.cut, t.denied
	t.cut, t.denied = o.cut, o.denied
	switch {
	case o.shut && (!o.denied || !t.e.Alone):
		return true, false
	case events > 1: // one of them may be the cause: the others must not wait for it
		t.single, t.denied = true, false
		return true, false
	case o.cut:
		t.single = true // in a batch, it would not use a separate connection
		return !cut, cut
	case o.denied:
		// Repeat it once, after the others: one of several receivers at an address may have other
		// rules.
		return !denied && !t.e.Alone, denied || t.e.Alone
	case o.reason == publish.ReasonTimeout:
		return !t.e.Alone, t.e.Alone // the receiver may have it, so the same bytes are sent again
	}
	return false, false
}

// noteRetry counts a retry, and logs the first of its kind in each window.
func (ep *endpoint) noteRetry(t *task, o *outcome, alone bool) {
	ep.metrics.Retries.WithLabelValues(o.reason).Inc()
	kind := o.reason
	level, advice := slog.LevelError, ""
	switch o.reason {
	case publish.ReasonUnauthorized:
		advice = "the receiver rejects the credentials: check headersFile, tokenFile or tls.certFile"
	case publish.ReasonProxy:
		advice = "the proxy requires credentials: set them in HTTP_PROXY and HTTPS_PROXY"
	case publish.ReasonNotFound:
		advice = "the receiver has no such path: check url"
	case publish.ReasonRedirect:
		advice = "redirects are not followed: set url to the address that the receiver redirects to (its path is not logged)"
	case publish.ReasonCredentials:
		advice = "check that the file can be read and is valid; it is read again at each attempt"
	case publish.ReasonTLS:
		advice = "check the files under tls and the receiver's certificate; they are read again at each connection"
	case publish.ReasonCut:
		advice = "the receiver closes the connection without a response: check its log"
		if !alone {
			level = slog.LevelWarn
		}
	default:
		level, advice = slog.LevelWarn, "none: the agent retries until the receiver accepts it"
	}
	if alone {
		kind += " alone"
		advice += "; the event is sent alone from now on, with pauses: if it is the cause, move it to the dead letters"
	}
	if suppressed, ok := ep.window.First(kind); ok {
		ep.log.Log(context.Background(), level, "publishing an event failed, retrying", "reason", o.reason, "alone",
			alone, "advice", advice, "detail", o.detail,
			"receiver", ep.origin, "event_id", string(t.e.ID), "suppressed", suppressed)
	}
}
