package informers

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// renewWithin is how long an informer that begins anew waits until what it has sent, or owes because of a list, is on the bus.
const renewWithin = 10 * time.Second

// newEdition notes that the definition of a resource is another one. stored: its objects are stored in another version. The API
// server lets watches from before go on for a second, and tells nothing of such objects on them; a new watch hears of them, or that
// its history is gone, while what was missed is still there to be read.
func (s *Set) newEdition(name string, stored bool) {
	for _, i := range s.observing() {
		if i.resource.String() != name {
			continue
		}
		i.edition.Add(1)
		if end := i.ending.Load(); stored && end != nil {
			(*end)(errEdition)
		}
	}
}

// conclusions ends informers that begin anew in another version. Each comes to rest before, so that nothing is told twice: where the
// first could not read all of a gap, the second might tell of an older version behind a newer one. That is not waited for for ever:
// then it is as behind a restart. Its error is the cause of ctx.
func (s *Set) conclusions(ctx context.Context, all []*running) error {
	var g errgroup.Group
	for _, i := range all {
		s.o.Log.Warn("a resource is served in another version now: its informer begins anew", "scope", i.scope, "version", i.resource.Version)
		i.store.Stop()
		g.Go(func() error {
			if err := i.Wait(ctx, func(View) bool { return s.hasBegun(i) }); err != nil {
				return err
			}
			patient, cancel := context.WithTimeout(ctx, renewWithin)
			_ = i.Wait(patient, func(v View) bool { return v.Ended || v.Resting })
			cancel()
			i.cancel()
			<-i.done
			return context.Cause(ctx)
		})
	}
	return g.Wait()
}
