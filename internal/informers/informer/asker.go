package informer

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

// Questions about the past are lists with resourceVersionMatch=Exact, of one name or of the whole
// scope. Each revision of etcd is a resourceVersion of every resource, so a list at the one right
// before a version is always possible.
//
// Under a selector that the API server applies, an ADDED may mean that the object matches only now,
// and a DELETED that it no longer matches. A question without the selector shows which. If several
// rules select objects of one resource, the agent reads and matches all objects.

// Before implements store.Selector.
func (i *Informer) Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool) {
	if o.ResourceVersion < 2 {
		return nil, false, true // resourceVersion 0 means any version
	}
	v, err := i.answer(ctx, backfill.Question{Ref: o.Ref, At: o.ResourceVersion - 1})
	if v != nil && v.Object.Ref.UID == o.Ref.UID { // otherwise another object had the name
		was = v.Object
	}
	return was, err == nil, ctx.Err() == nil
}

// Exists implements store.Selector.
func (i *Informer) Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool) {
	if at := i.RemovedAt(); at != 0 && (rv == 0 || rv >= at) {
		return false, true, true // no object outlives its definition
	}
	v, err := i.answer(ctx, backfill.Question{Ref: ref, At: rv})
	return v != nil && v.Object.Ref.UID == ref.UID, err == nil, ctx.Err() == nil
}

// answer asks q until the API server answers, or refuses permanently.
func (i *Informer) answer(ctx context.Context, q backfill.Question) (v *backfill.Answer, err error) {
	err = i.Retry(ctx, func(ctx context.Context) (err error) {
		v, err = i.ask(ctx, q)
		return err
	})
	return v, err
}

// Retry implements backfill.Asker: it calls request until it succeeds, fails permanently, or ctx
// ends.
func (i *Informer) Retry(ctx context.Context, request func(context.Context) error) error {
	failed := false
	err := retry.Do(ctx, func() error { return request(ctx) }, func(err error, delay time.Duration) bool {
		if errors.Is(err, apiserver.ErrUnanswerable) {
			return false
		}
		i.noteFailed(ctx, "ask", err, delay)
		failed = true
		return !apiserver.IsPermanent(err)
	})
	if failed && ctx.Err() == nil && !apierrors.IsForbidden(err) {
		// a missing permission stays visible until the next watch opens
		i.noteRecovered() // also if it is refused permanently: there is no retry, and the watch continues
	}
	return err
}

// Ask implements backfill.Asker.
func (i *Informer) Ask(ctx context.Context, q backfill.Question) (v *backfill.Answer, err error) {
	err = i.inSlot(ctx, func() (err error) {
		v, err = i.ask(ctx, q)
		return err
	})
	return v, err
}

// List implements backfill.Asker.
func (i *Informer) List(
	ctx context.Context, rv uint64, request func() error, each func(*object.Object, *object.Scanned) error,
) error {
	return i.inSlot(ctx, func() error { return i.listAt(ctx, rv, request, each) })
}

// inSlot makes a request of a search for versions.
func (i *Informer) inSlot(ctx context.Context, request func() error) error {
	select {
	case i.deps.Walks <- struct{}{}:
		defer func() { <-i.deps.Walks }()
		return request()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listAt lists the scope at rv.
func (i *Informer) listAt(
	ctx context.Context, rv uint64, request func() error, each func(*object.Object, *object.Scanned) error,
) error {
	if err := request(); err != nil {
		return err
	}
	r := i.newReader()
	exactly := object.FormatVersion(rv)
	_, err := i.deps.Client.Pages(ctx, i.resource, i.selection.Namespace, apiserver.JSON, metav1.ListOptions{
		ResourceVersion: exactly, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}, func(raw []byte) error {
		o, err := r.read(raw, false)
		if err != nil {
			return err
		}
		return each(o.object, r.scanned)
	}, func(meta *object.ListMeta) error {
		if meta.ResourceVersion != exactly { // the server does not support Exact
			return apiserver.ErrUnanswerable
		}
		if meta.Continue != "" {
			return request()
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case apiserver.IsGone(err):
		return apiserver.ErrUnanswerable
	default:
		return fmt.Errorf("%s at resourceVersion %d: %w", i.name, rv, err)
	}
}

// ask asks q once.
func (i *Informer) ask(ctx context.Context, q backfill.Question) (*backfill.Answer, error) {
	v, _, err := i.askWith(ctx, q, metav1.ListOptions{})
	if err != nil {
		err = fmt.Errorf("%s at resourceVersion %d: %w", q.Ref.Key, q.At, err)
	}
	return v, err
}

// askWith asks q once, with list options. It also returns the resourceVersion of the list.
func (i *Informer) askWith(
	ctx context.Context, q backfill.Question, opts metav1.ListOptions,
) (*backfill.Answer, uint64, error) {
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
	var v *backfill.Answer
	meta, err := i.deps.Client.List(ctx, i.resource, q.Ref.Namespace(), apiserver.JSON, opts, func(raw []byte) error {
		o, err := r.read(raw, false)
		switch {
		case err != nil:
			return err
		case o.object == nil, o.object.Ref.Key != q.Ref.Key:
			// the server ignores the field selector: the rest may be the whole scope
			return apiserver.ErrUnanswerable
		}
		v = &backfill.Answer{Object: o.object, Managers: r.scanned.CopyManagers(), Outside: o.outside}
		return nil
	})
	switch {
	case apiserver.IsGone(err):
		return nil, 0, apiserver.ErrUnanswerable
	case err != nil:
		return nil, 0, err
	case q.At != 0 &&
		(meta.ResourceVersion != object.FormatVersion(q.At) || v != nil && v.Object.ResourceVersion > q.At):
		return nil, 0, apiserver.ErrUnanswerable // the server does not support Exact
	}
	at, err := apiserver.ListVersion(&meta)
	return v, at, err
}
