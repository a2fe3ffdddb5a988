package informers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Under a selector that the API server applies, its ADDED may mean "matches now" and its DELETED "no longer matches".
// Only history tells: LIST of the object's name, without the selector, Exact at that resourceVersion or at the one
// before it. Every revision of etcd is a resourceVersion of every resource, so "the one before" always exists.

// before implements selected.
func (i *informer) before(ctx context.Context, o *object.Object) (was *object.Object, told bool, err error) {
	was, told, err = i.named(ctx, o.Ref, o.ResourceVersion-1)
	if was != nil && was.Ref.UID != o.Ref.UID {
		was = nil // another object had the name
	}
	return was, told, err
}

// exists implements selected.
func (i *informer) exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, told bool, err error) {
	o, told, err := i.named(ctx, ref, rv)
	return o != nil && o.Ref.UID == ref.UID, told, err
}

// named reads the object of ref's name as it was at rv (0: as it is now), nil where there was none. told is false where
// that version is gone from history, or the server cannot be asked in this way.
func (i *informer) named(ctx context.Context, ref *object.Ref, rv uint64) (o *object.Object, told bool, err error) {
	opts := metav1.ListOptions{FieldSelector: "metadata.name=" + ref.Name}
	if rv != 0 {
		opts.ResourceVersion, opts.ResourceVersionMatch = object.FormatVersion(rv), metav1.ResourceVersionMatchExact
	}
	r := i.newReader()
	meta, err := i.page(ctx, ref.Namespace, opts, func(raw []byte) error {
		obs, err := r.read(raw, false)
		if err == nil {
			o = obs.object
		}
		return err
	})
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err):
		return nil, false, nil
	case err != nil:
		i.noteError("exact", err)
		return nil, false, fmt.Errorf("ask for %s at resourceVersion %d: %w", ref.Key, rv, err)
	case rv != 0 && meta.ResourceVersion != object.FormatVersion(rv):
		return nil, false, nil // a server that does not know Exact
	}
	return o, true, nil
}
