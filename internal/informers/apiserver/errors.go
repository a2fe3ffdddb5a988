package apiserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

var (
	// ErrUnsupported means that a resource cannot be captured: it has no uids, or its
	// resourceVersions are not numbers.
	ErrUnsupported = errors.New("cannot be captured")
	// ErrUnanswerable means that the server cannot answer a question about the past: that version
	// is compacted, or the server does not support the request.
	ErrUnanswerable = errors.New("the API server cannot answer")
	// ErrSilent ends a request on which nothing arrives although something should.
	ErrSilent = errors.New("the API server sent nothing")
	// errSlow ends a request that takes too long, although something arrives.
	errSlow = errors.New("the API server did not complete its answer")
)

// The classes of errors that Reason returns, as values of a metric's label.
const (
	ReasonUnsupported     = "refused"
	ReasonNotFound        = "not_found"
	ReasonForbidden       = "forbidden"
	reasonUnauthorized    = "unauthorized"
	reasonTooManyRequests = "too_many_requests"
	ReasonExpired         = "expired"
	reasonTimeout         = "timeout"
	reasonServerError     = "server_error"
	reasonNetwork         = "network"
	reasonOther           = "other"
)

// Reasons returns all classes.
func Reasons() []string {
	return []string{
		ReasonUnsupported, ReasonNotFound, ReasonForbidden, reasonUnauthorized, reasonTooManyRequests, ReasonExpired,
		reasonTimeout,
		reasonServerError, reasonNetwork, reasonOther,
	}
}

// Reason returns the class of err, one of Reasons.
func Reason(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, ErrUnsupported):
		return ReasonUnsupported
	case apierrors.IsNotFound(err):
		return ReasonNotFound
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case apierrors.IsUnauthorized(err):
		return reasonUnauthorized
	case apierrors.IsTooManyRequests(err):
		return reasonTooManyRequests
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), errors.Is(err, ErrTooMany):
		return ReasonExpired
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), IsUnanswered(err), isLate(err):
		return reasonTimeout
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err):
		return reasonServerError
	case errors.As(err, &netErr), errors.Is(err, io.ErrUnexpectedEOF), utilnet.IsProbableEOF(err),
		utilnet.IsConnectionReset(err), utilnet.IsConnectionRefused(err), utilnet.IsHTTP2ConnectionLost(err):
		return reasonNetwork
	default:
		return reasonOther
	}
}

// IsShared reports whether errors of a class concern all resources of the API server.
func IsShared(reason string) bool { return reason == reasonNetwork || reason == reasonUnauthorized }

// NeedsOperator reports whether errors of a class last until an operator changes the served
// resources or the permissions.
func NeedsOperator(reason string) bool {
	return reason == ReasonForbidden || reason == ReasonNotFound || reason == ReasonUnsupported
}

// IsUnanswered reports whether err is the end of a time limit: the API server did not answer, or
// not completely.
func IsUnanswered(err error) bool { return errors.Is(err, ErrSilent) || errors.Is(err, errSlow) }

// isLate reports whether err is the end of a request's time on a connection. The error of a
// connection that could not be opened in time is a net.OpError.
func isLate(err error) bool {
	var op *net.OpError
	return errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &op)
}

// IsTemporary reports whether err passes without a change of the request or of the objects. It is
// an error of the network, or of a server that is busy, restarts or does not answer in time.
func IsTemporary(err error) bool {
	switch Reason(err) {
	case reasonNetwork, reasonUnauthorized, reasonTooManyRequests, reasonTimeout:
		return true
	}
	return apierrors.IsServiceUnavailable(err)
}

// IsGone reports whether err has the status 410: the requested history is compacted.
func IsGone(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusGone
}

// IsPermanent reports whether err is a refusal that a retry does not change. For instance, an
// authorizer that evaluates selectors may allow a watch and forbid a list of a single name.
func IsPermanent(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, ErrUnsupported)
	}
	if apierrors.IsStoreReadError(err) { // it is stored in a version that is no longer defined
		return true
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusUnauthorized
}
