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

// Access is a question: may a resource be listed and watched in a namespace?
type Access struct {
	Resource  object.Resource
	Namespace string // "": in all
	Answered  bool
	Allowed   bool // the answer
}

// Review answers questions until one of them cannot be answered: that is its error, which may pass. Those before it are answered.
func Review(ctx context.Context, c *apiserver.Client, all []*Access) error {
	var g errgroup.Group
	var failed atomic.Bool
	g.SetLimit(reviewsAtOnce)
	for _, a := range all {
		g.Go(func() (err error) {
			if failed.Load() {
				return nil // the error is that of another
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
