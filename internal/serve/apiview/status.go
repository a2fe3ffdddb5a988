package apiview

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// writeError answers with the Status of an error.
func writeError(w http.ResponseWriter, err error) {
	s := statusOf(err)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	writeJSON(w, int(s.Code), s)
}

// statusOf returns the Status of an error.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return s
}

// versionError is an error about a resourceVersion that the view does not have. A watch is answered
// with an event about it.
type versionError struct{ error }

func (e *versionError) Unwrap() error { return e.error }

func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // a Status always can be written
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client has gone
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.plural}
}

func failure(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: fmt.Sprintf(format, args...),
	}}
}

func errNoResource() error {
	return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// errOtherVersion is the answer to a resourceVersion, or a continue token, that the view does not
// have.
func errOtherVersion(format string, args ...any) error {
	return failure(http.StatusGone, metav1.StatusReasonExpired, format, args...)
}

func errTooLarge(asked, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// errUnavailable is the answer if a moment cannot be read now.
func errUnavailable(err error) error {
	out := apierrors.NewServiceUnavailable(err.Error())
	out.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 5}
	return out
}

// errTooManyMoments is the answer if other requests use all moments that may be in memory.
func errTooManyMoments(used int) error {
	return apierrors.NewTooManyRequests(
		fmt.Sprintf("%d moments are in use by other requests: try again, ask for one of those, or raise --max-moments",
			used), 5)
}
