package apiserver

import (
	"errors"
	"io"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

var (
	// ErrUnsupported marks resources that cannot be captured at all: without uids, or with opaque resourceVersions.
	ErrUnsupported = errors.New("cannot be captured")
	// ErrUnanswerable means that the server cannot answer a question about the past: that version is compacted, or the server does not
	// support the request.
	ErrUnanswerable = errors.New("the API server cannot tell")
	// ErrSilent ends a request on which nothing arrives although something should.
	ErrSilent = errors.New("the API server sent nothing")
	// errSlow ends a request that takes too long, although something arrives.
	errSlow = errors.New("the API server did not complete its answer")
)

// The classes of failed requests that Reason returns, for a metric's label.
const (
	reasonUnsupported     = "refused"
	reasonNotFound        = "not_found"
	reasonForbidden       = "forbidden"
	reasonUnauthorized    = "unauthorized"
	reasonTooManyRequests = "too_many_requests"
	reasonExpired         = "expired"
	reasonTimeout         = "timeout"
	reasonServerError     = "server_error"
	reasonNetwork         = "network"
	reasonOther           = "other"
)

// Reasons are all classes.
func Reasons() []string {
	return []string{
		reasonUnsupported, reasonNotFound, reasonForbidden, reasonUnauthorized, reasonTooManyRequests, reasonExpired, reasonTimeout,
		reasonServerError, reasonNetwork, reasonOther,
	}
}

// Reason is the class of err, one of Reasons.
func Reason(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, ErrUnsupported):
		return reasonUnsupported
	case apierrors.IsNotFound(err):
		return reasonNotFound
	case apierrors.IsForbidden(err):
		return reasonForbidden
	case apierrors.IsUnauthorized(err):
		return reasonUnauthorized
	case apierrors.IsTooManyRequests(err):
		return reasonTooManyRequests
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return reasonExpired
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), IsUnanswered(err):
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

// IsShared reports whether a failure of this class concerns the whole API server: all resources fail with it.
func IsShared(reason string) bool { return reason == reasonNetwork || reason == reasonUnauthorized }

// NeedsOperator reports whether a failure of this class lasts until somebody changes what is served or permitted.
func NeedsOperator(reason string) bool {
	return reason == reasonForbidden || reason == reasonNotFound || reason == reasonUnsupported
}

// IsUnanswered reports whether the API server has not answered, or not to the end.
func IsUnanswered(err error) bool { return errors.Is(err, ErrSilent) || errors.Is(err, errSlow) }

// IsGone reports a 410: the history that was asked for is compacted.
func IsGone(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusGone
}

// IsPermanent reports refusals that another attempt does not change. An authorizer that honours selectors may forbid a list of one
// name although it allows the watch.
func IsPermanent(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, ErrUnsupported)
	}
	if apierrors.IsStoreReadError(err) { // it is stored in a version that is not defined any more
		return true
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusUnauthorized
}
