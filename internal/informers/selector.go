package informers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Under a selector that the API server applies, its ADDED may mean "matches now" and its DELETED "no longer matches".
// Only history tells: LIST of the object's name, without the selector, Exact at that resourceVersion or at the one
// before it. Every revision of etcd is a resourceVersion of every resource, so "the one before" always exists.

// errNotTold says that the server will never tell: that version is gone, or it cannot be asked in this way.
var errNotTold = errors.New("the API server cannot tell")

// before implements selected.
func (i *informer) before(ctx context.Context, o *object.Object) (was *object.Object, told, ok bool) {
	if o.ResourceVersion < 2 {
		return nil, false, true // at 0, the server would answer with what is now
	}
	was, err := i.named(ctx, o.Ref, o.ResourceVersion-1)
	if was != nil && was.Ref.UID != o.Ref.UID {
		was = nil // another object had the name
	}
	return was, err == nil, ctx.Err() == nil
}

// exists implements selected.
func (i *informer) exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, told, ok bool) {
	o, err := i.named(ctx, ref, rv)
	return o != nil && o.Ref.UID == ref.UID, err == nil, ctx.Err() == nil
}

// named reads the object of ref's name as it was at rv (0: as it is now), nil where there was none. It retries what may
// pass. Any error is final: errNotTold or a refusal, or the end of ctx.
func (i *informer) named(ctx context.Context, ref *object.Ref, rv uint64) (*object.Object, error) {
	b, failed := newBackoff(), false
	for {
		o, err := i.askFor(ctx, ref, rv)
		if err == nil && failed {
			i.recovered()
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, errNotTold) {
			return o, err
		}
		delay := b.next(err)
		i.failed(ctx, "ask", fmt.Errorf("%s at resourceVersion %d: %w", ref.Key, rv, err), delay)
		if neverTold(err) {
			return nil, err
		}
		failed = true
		if !sleep(ctx, delay) {
			return nil, context.Cause(ctx)
		}
	}
}

// neverTold tells refusals that asking again does not change. An authorizer that honours selectors may forbid the
// question although it allows the watch.
func neverTold(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, errRefused)
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusUnauthorized
}

// askFor asks once.
func (i *informer) askFor(ctx context.Context, ref *object.Ref, rv uint64) (o *object.Object, err error) {
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", ref.Name()).String()}
	if rv != 0 {
		opts.ResourceVersion, opts.ResourceVersionMatch = object.FormatVersion(rv), metav1.ResourceVersionMatchExact
	}
	r := i.newReader()
	foreign := false
	meta, err := i.page(ctx, ref.Namespace(), opts, func(raw []byte) error {
		obs, err := r.read(raw, false)
		switch {
		case errors.Is(err, errExcluded), err == nil && obs.object.Ref.Key != ref.Key:
			foreign = true
			return nil
		case err == nil:
			o = obs.object
		}
		return err
	})
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return nil, errNotTold
	case err != nil:
		return nil, err
	case foreign || rv != 0 && meta.ResourceVersion != object.FormatVersion(rv):
		return nil, errNotTold // a server that does not know the field selector, or not Exact
	}
	return o, nil
}
