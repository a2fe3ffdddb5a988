package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// keeper is an API server that keeps each request on a live connection.
type keeper func(r *http.Request) (*http.Response, error)

func (k keeper) RoundTrip(r *http.Request) (*http.Response, error) { return k(r) }

// drips is a body of spaces, one each second until the request ends.
type drips struct {
	ctx  context.Context
	dead bool // there are none
}

func (d drips) Read(p []byte) (int, error) {
	var next <-chan time.Time
	if !d.dead {
		next = time.After(time.Second)
	}
	select {
	case <-next:
		p[0] = ' '
		return 1, nil
	case <-d.ctx.Done():
		return 0, context.Cause(d.ctx)
	}
}

// Each request ends, whatever a server does with it: also if it answers nothing, stops in the
// middle of the body, or continues it without an end.
func TestEachRequestEnds(t *testing.T) {
	answer := func(r *http.Request, dead bool) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {
				"application/json",
			}}, Body: io.NopCloser(drips{r.Context(), dead}), Request: r,
		}, nil
	}
	servers := map[string]keeper{
		"no answer": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		},
		"no body":           func(r *http.Request) (*http.Response, error) { return answer(r, true) },
		"a body that drips": func(r *http.Request) (*http.Response, error) { return answer(r, false) },
	}
	pods := &object.Resource{Version: "v1", Name: "pods"}
	requests := map[string]struct {
		within time.Duration
		ask    func(ctx context.Context, c *apiserver.Client) error
	}{
		"uid": {30 * time.Second, func(ctx context.Context, c *apiserver.Client) error {
			_, err := c.ClusterUID(ctx)
			return err
		}},
		"review": {30 * time.Second, func(ctx context.Context, c *apiserver.Client) error {
			_, err := c.Allowed(ctx, pods, "", "list")
			return err
		}},
		"discovery": {30 * time.Second, func(ctx context.Context, c *apiserver.Client) error {
			_, err := c.Discovery.ServerGroupsWithContext(ctx)
			return err
		}},
		"resources of a group": {30 * time.Second, func(ctx context.Context, c *apiserver.Client) error {
			_, err := c.Discovery.ServerResourcesForGroupVersionWithContext(ctx, "apps/v1")
			return err
		}},
		"list": {5 * time.Minute, func(ctx context.Context, c *apiserver.Client) error {
			_, err := c.Pages(ctx, pods, "", apiserver.JSON, metav1.ListOptions{}, func([]byte) error { return nil },
				func(*object.ListMeta) error { return nil })
			return err
		}},
		"latest": {5 * time.Minute, func(ctx context.Context, c *apiserver.Client) error {
			_, err := c.Latest(ctx, pods, "", apiserver.JSON, metav1.ListOptions{})
			return err
		}},
		"watch": {11 * time.Minute, func(ctx context.Context, c *apiserver.Client) error {
			s, err := c.Stream(ctx, pods, "", metav1.ListOptions{}, false, false)
			if err != nil {
				return err
			}
			defer s.Close()
			_, _, err = s.Next()
			return err
		}},
	}
	for server, keep := range servers {
		for name, request := range requests {
			t.Run(name+", "+server, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, err := apiserver.New(&rest.Config{Host: "http://api", Transport: keep})
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					err = request.ask(t.Context(), c)
					if took := time.Since(began); err == nil || took > request.within ||
						apiserver.Reason(err) != "timeout" {
						t.Errorf("%v (%s) after %v, want timeout within %v", err, apiserver.Reason(err), took,
							request.within)
					}
				})
			})
		}
	}
}
