package discovery

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// reviewsAtOnce is how many access reviews run at a time.
const reviewsAtOnce = 8

// Access asks whether a resource may be listed and watched in a namespace.
type Access struct {
	Resource  object.Resource
	Namespace string // "": all
	Answered  bool
	Allowed   bool // if Answered
}

// Review answers all questions. If a request fails, Review returns its error, and some questions are not answered.
func Review(ctx context.Context, c *apiserver.Client, all []*Access) error {
	var g errgroup.Group
	var failed atomic.Bool
	g.SetLimit(reviewsAtOnce)
	for _, a := range all {
		g.Go(func() (err error) {
			if failed.Load() {
				return nil // another question has returned the error
			}
			for _, verb := range []string{"list", "watch"} {
				if a.Allowed, err = c.Allowed(ctx, &a.Resource, a.Namespace, verb); !a.Allowed || err != nil {
					break
				}
			}
			a.Answered = err == nil
			failed.CompareAndSwap(false, err != nil)
			return err
		})
	}
	return g.Wait()
}
