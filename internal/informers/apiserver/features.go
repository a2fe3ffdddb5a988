package apiserver

import (
	"errors"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Feature is a kind of request that not every API server answers: older versions do not, nor do
// those with other feature gates, nor some servers of other groups. Nothing else in the agent
// depends on the version of an API server.
type Feature uint8

// The features. Each comment says what the agent does without it.
const (
	// a watch begins with the existing objects (KEP-3157); else they are listed in pages
	InitialEvents Feature = iota
	ExactLists            // a list of a past resourceVersion; else a restart loses history
	// a field selector besides metadata; else the agent's part of the resource cannot be selected
	SelectableFields
)

// features has the errors that show that an API server does not have a feature: the agent sends the
// request, and looks at its error.
func features() [3]struct {
	codes []int   // HTTP status codes of a refusal
	errs  []error // other errors that show it
} {
	return [...]struct {
		codes []int
		errs  []error
	}{
		InitialEvents: {
			codes: []int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity},
			errs:  []error{ErrNoEnd, ErrSilent, errSlow},
		},
		ExactLists: {codes: []int{
			http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity,
		}},
		SelectableFields: {codes: []int{http.StatusBadRequest}},
	}
}

// IsMissing reports whether the error of a request that needs the feature shows that the API server
// does not have it.
func (f Feature) IsMissing(err error) bool {
	by := features()[f]
	isOne := slices.ContainsFunc(by.errs, func(one error) bool { return errors.Is(err, one) })
	var status apierrors.APIStatus
	return isOne || errors.As(err, &status) && slices.Contains(by.codes, int(status.Status().Code))
}

// missing has the features that API servers were found not to have.
type missing struct {
	mu    sync.Mutex
	known map[missingFeature]bool
}

type missingFeature struct {
	feature Feature
	server  string // the API group that another API server serves; "": the cluster's API server
}

// NoteMissing notes that an API server does not have a feature: that of an API group, or of the
// cluster ("").
func (c *Client) NoteMissing(f Feature, server string) {
	c.missing.mu.Lock()
	defer c.missing.mu.Unlock()
	if c.missing.known == nil {
		c.missing.known = map[missingFeature]bool{}
	}
	c.missing.known[missingFeature{f, server}] = true
}

// IsMissing reports whether NoteMissing was called.
func (c *Client) IsMissing(f Feature, server string) bool {
	c.missing.mu.Lock()
	defer c.missing.mu.Unlock()
	return c.missing.known[missingFeature{f, server}]
}
