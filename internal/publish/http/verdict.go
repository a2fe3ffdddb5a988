package http

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// verdict decides about an event after a request with that many events: either it is repeated, or it ends with err.
func (p *endpoint) verdict(t *task, o *outcome, events int) (repeat bool, err error) {
	switch o.kind {
	case acked:
		return false, nil
	case ended:
		return false, publish.ErrClosed
	case fenced:
		return false, fmt.Errorf("publish %s to %s: %w", t.e.ID, p.origin, o.err)
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
		return false, fmt.Errorf("publish %s to %s: %w: %s", t.e.ID, p.origin, why, o.detail)
	case retried:
	}
	repeat, alone := t.retry(o, events)
	p.noteRetry(t, o, alone)
	if repeat {
		t.e.Retried(o.reason)
		return true, nil
	}
	return false, &publish.RetryError{
		Reason: o.reason, Alone: alone, Err: fmt.Errorf("publish %s to %s: %s", t.e.ID, p.origin, o.detail),
	}
}

// retry reports whether the event is repeated at once, or as soon as the throttle permits. Otherwise, alone reports whether it is to be
// sent alone.
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
		// Repeat it once, after the others: one of several receivers at an address may have other rules.
		return !denied && !t.e.Alone, denied || t.e.Alone
	case o.reason == publish.ReasonTimeout:
		return !t.e.Alone, t.e.Alone // the receiver may have it, so the same bytes are sent again
	}
	return false, false
}

// noteRetry counts a retry, and logs the first of its kind in each window.
func (p *endpoint) noteRetry(t *task, o *outcome, alone bool) {
	p.metrics.Retries.WithLabelValues(o.reason).Inc()
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
	if suppressed, ok := p.window.First(kind); ok {
		p.log.Log(context.Background(), level, "publishing an event failed, retrying", "reason", o.reason, "alone", alone, "advice", advice, "detail", o.detail,
			"receiver", p.origin, "event_id", string(t.e.ID), "suppressed", suppressed)
	}
}
