package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// Questions about the past are lists with resourceVersionMatch=Exact, of one name or of the whole scope. Each revision of etcd is
// a resourceVersion of every resource, so the one right before a version can always be listed.
//
// Under a selector that the API server applies, an ADDED may mean that the object matches now, and a DELETED that it no longer
// matches. A question without the selector shows which. If several rules select objects of one resource, the agent reads all
// objects and matches them itself.

// Before implements store.Selector.
func (i *Informer) Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool) {
	if o.ResourceVersion < 2 {
		return nil, false, true // resourceVersion 0 means any version
	}
	v, err := i.answer(ctx, backfill.Question{Ref: o.Ref, At: o.ResourceVersion - 1})
	if v != nil && v.Object.Ref.UID == o.Ref.UID { // else another object had the name
		was = v.Object
	}
	return was, err == nil, ctx.Err() == nil
}

// Exists implements store.Selector.
func (i *Informer) Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool) {
	if rv == 0 && i.RemovedAt() != 0 {
		return false, true, true // no object outlives its definition
	}
	v, err := i.answer(ctx, backfill.Question{Ref: ref, At: rv})
	if i.RemovedAt() != 0 && apierrors.IsNotFound(err) {
		return false, true, true
	}
	return v != nil && v.Object.Ref.UID == ref.UID, err == nil, ctx.Err() == nil
}

// answer asks q until the API server answers, or refuses permanently.
func (i *Informer) answer(ctx context.Context, q backfill.Question) (v *backfill.Version, err error) {
	err = i.retryAsking(ctx, func(ctx context.Context) (err error) {
		v, err = i.ask(ctx, q)
		return err
	})
	return v, err
}

// retryAsking calls request until it succeeds, fails in a way that another attempt does not change, or ctx ends.
func (i *Informer) retryAsking(ctx context.Context, request func(context.Context) error) error {
	failed := false
	err := retry.Do(ctx, func() error { return request(ctx) }, func(err error, delay time.Duration) bool {
		if errors.Is(err, apiserver.ErrUnanswerable) {
			return false
		}
		i.failed(ctx, "ask", err, delay)
		failed = true
		return !apiserver.IsPermanent(err)
	})
	if failed && ctx.Err() == nil && !apierrors.IsForbidden(err) { // a missing permission stays visible until the next watch opens
		i.recovered() // also if it is refused permanently: nothing is retried any more, and the watch continues
	}
	return err
}

// Asker returns the Asker for questions about the past of the scope.
func (i *Informer) Asker() backfill.Asker { return asker{i} }

// asker implements backfill.Asker. Each of its requests holds one of the walk slots.
type asker struct{ *Informer }

// Ask implements backfill.Asker.
func (a asker) Ask(ctx context.Context, q backfill.Question) (v *backfill.Version, err error) {
	err = a.inSlot(ctx, func() (err error) {
		v, err = a.ask(ctx, q)
		return err
	})
	return v, err
}

// List implements backfill.Asker.
func (a asker) List(ctx context.Context, rv uint64, each func(*object.Object, *object.Scanned) error) error {
	return a.inSlot(ctx, func() error { return a.listAt(ctx, rv, each) })
}

// Retry implements backfill.Asker.
func (a asker) Retry(ctx context.Context, request func(context.Context) error) error {
	return a.retryAsking(ctx, request)
}

func (a asker) inSlot(ctx context.Context, request func() error) error {
	select {
	case a.deps.Walks <- struct{}{}:
		defer func() { <-a.deps.Walks }()
		return request()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listAt lists the scope at rv.
func (i *Informer) listAt(ctx context.Context, rv uint64, each func(*object.Object, *object.Scanned) error) error {
	r := i.newReader()
	o := metav1.ListOptions{
		Limit: apiserver.PageSize, ResourceVersion: object.FormatVersion(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}
	for {
		meta, err := i.page(ctx, i.selection.Namespace, o, func(raw []byte) error {
			obs, err := r.read(raw, false)
			switch {
			case errors.Is(err, errExcluded):
				return nil
			case err != nil:
				return err
			}
			return each(obs.object, r.scanned)
		})
		switch {
		case apiserver.IsGone(err):
			return apiserver.ErrUnanswerable
		case err != nil:
			return fmt.Errorf("%s at resourceVersion %d: %w", i.name, rv, err)
		case meta.ResourceVersion != object.FormatVersion(rv):
			return apiserver.ErrUnanswerable // a server that does not know Exact
		case meta.Continue == "":
			return nil
		}
		o.Continue, o.ResourceVersion, o.ResourceVersionMatch = meta.Continue, "", "" // the token has the resourceVersion
	}
}

// ask asks q once.
func (i *Informer) ask(ctx context.Context, q backfill.Question) (*backfill.Version, error) {
	v, _, err := i.look(ctx, q, metav1.ListOptions{})
	if err != nil {
		err = fmt.Errorf("%s at resourceVersion %d: %w", q.Ref.Key, q.At, err)
	}
	return v, err
}

// look is ask with options of the list, and its resourceVersion.
func (i *Informer) look(ctx context.Context, q backfill.Question, opts metav1.ListOptions) (*backfill.Version, uint64, error) {
	opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", q.Ref.Name()).String()
	if q.Selected {
		opts.LabelSelector = i.selection.LabelSelector
		if i.selection.FieldSelector != "" {
			opts.FieldSelector += "," + i.selection.FieldSelector
		}
	}
	if q.At != 0 {
		opts.ResourceVersion, opts.ResourceVersionMatch = object.FormatVersion(q.At), metav1.ResourceVersionMatchExact
	}
	r := i.newReader()
	var v *backfill.Version
	foreign := false
	meta, err := i.page(ctx, q.Ref.Namespace(), opts, func(raw []byte) error {
		obs, err := r.read(raw, false)
		switch {
		case errors.Is(err, errExcluded), err == nil && obs.object.Ref.Key != q.Ref.Key:
			foreign = true
			return nil
		case err == nil:
			v = &backfill.Version{Object: obs.object, Managers: r.scanned.CopyManagers(), Outside: obs.outside}
		}
		return err
	})
	switch {
	case apiserver.IsGone(err):
		return nil, 0, apiserver.ErrUnanswerable
	case err != nil:
		return nil, 0, err
	case foreign, q.At != 0 && (meta.ResourceVersion != object.FormatVersion(q.At) || v != nil && v.Object.ResourceVersion > q.At):
		return nil, 0, apiserver.ErrUnanswerable // a server that does not know the field selector, or not Exact
	}
	at, err := apiserver.ListVersion(&meta)
	return v, at, err
}
