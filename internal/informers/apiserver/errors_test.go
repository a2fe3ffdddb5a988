package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// Each error has its class; permanent are refusals that another attempt does not change.
func TestErrorClasses(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}
	}
	for _, c := range []struct {
		err                    error
		reason                 string
		permanent, gone, alone bool
	}{
		{apierrors.NewNotFound(pods, "a"), "not_found", true, false, true},
		{apierrors.NewForbidden(pods, "a", errors.New("no")), "forbidden", true, false, true},
		{apierrors.NewUnauthorized("no"), "unauthorized", false, false, false},
		{apierrors.NewTooManyRequests("later", 1), "too_many_requests", false, false, true},
		{apierrors.NewResourceExpired("gone"), "expired", true, true, true},
		{apierrors.NewServerTimeout(pods, "list", 1), "timeout", false, false, true},
		{fmt.Errorf("open: %w", apiserver.ErrSilent), "timeout", false, false, true},
		{&url.Error{Op: "Get", Err: context.DeadlineExceeded}, "timeout", false, false, true},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "network", false, false, false},
		{apierrors.NewInternalError(errors.New("webhook")), "server_error", false, false, true},
		{status(http.StatusBadRequest, metav1.StatusReasonBadRequest), "other", true, false, true},
		{io.ErrUnexpectedEOF, "network", false, false, false},
		{fmt.Errorf("list: %w", apiserver.ErrUnsupported), "refused", true, false, true},
	} {
		err := fmt.Errorf("list pods: %w", c.err)
		if got := apiserver.Reason(err); got != c.reason || apiserver.IsShared(got) == c.alone {
			t.Errorf("%v: reason %s, shared %t; want %s, %t", err, got, apiserver.IsShared(got), c.reason, !c.alone)
		}
		if permanent, gone := apiserver.IsPermanent(err), apiserver.IsGone(err); permanent != c.permanent ||
			gone != c.gone {
			t.Errorf("%v: permanent %t, gone %t; want %t, %t", err, permanent, gone, c.permanent, c.gone)
		}
	}
}

// One list at a time has the turn.
func TestTurnOfLists(t *testing.T) {
	slots := apiserver.NewListSlots()
	pass, err := slots.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := slots.Turn(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second list: %v, want it to wait", err)
	}
	pass()
	if _, err := slots.Turn(t.Context()); err != nil {
		t.Errorf("after the first: %v", err)
	}
}
