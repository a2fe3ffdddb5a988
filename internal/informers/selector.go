package informers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// Where several rules take objects of a resource, the agent sees all of them and tells itself which rule takes a version.
//
// Under a selector that the API server applies, its ADDED may mean "matches now" and its DELETED "no longer matches".
// Only history tells: LIST of the object's name, without the selector, Exact at that resourceVersion or at the one
// before it. Every revision of etcd is a resourceVersion of every resource, so "the one before" always exists.

// question is about the name of ref: which object had it at rv (0: which has it now)? selected: one that the selectors take
// which the API server applies, else none.
type question struct {
	ref      *object.Ref
	rv       uint64
	selected bool
}

// found is the answer to a question.
type found struct {
	object *object.Object
	// managers are the entries of its managedFields: the version before it, which tells changedBy, is asked for later.
	managers *object.Scanned
	outside  bool // no rule of the scope takes it; as far as the API server applies selectors, whoever asks has to find out
}

// Before implements store.Selector.
func (i *informer) Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool) {
	if o.ResourceVersion < 2 {
		return nil, false, true // at 0, the server would answer with what is now
	}
	f, err := i.answer(ctx, question{ref: o.Ref, rv: o.ResourceVersion - 1}, i.ask)
	if f != nil && f.object.Ref.UID == o.Ref.UID { // else another object had the name
		was = f.object
	}
	return was, err == nil, ctx.Err() == nil
}

// Exists implements store.Selector.
func (i *informer) Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool) {
	if rv == 0 && i.vanished.Load() != 0 {
		return false, true, true // nothing lives on without its definition
	}
	f, err := i.answer(ctx, question{ref: ref, rv: rv}, i.ask)
	if i.vanished.Load() != 0 && apierrors.IsNotFound(err) {
		return false, true, true
	}
	return f != nil && f.object.Ref.UID == ref.UID, err == nil, ctx.Err() == nil
}

// answer has ask answer q, nil where no object had the name. It retries what may pass. Any error is final: apiserver.ErrUnanswerable or a
// refusal, or the end of ctx.
func (i *informer) answer(ctx context.Context, q question, ask func(context.Context, question) (*found, error)) (*found, error) {
	b, failed := retry.New(), false
	for {
		f, err := ask(ctx, q)
		if err == nil && failed {
			i.recovered()
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, apiserver.ErrUnanswerable) {
			return f, err
		}
		delay := b.Next(err)
		i.failed(ctx, "ask", fmt.Errorf("%s at resourceVersion %d: %w", q.ref.Key, q.rv, err), delay)
		if apiserver.IsPermanent(err) {
			return nil, err
		}
		failed = true
		if !retry.Sleep(ctx, delay) {
			return nil, context.Cause(ctx)
		}
	}
}

// ask asks once.
func (i *informer) ask(ctx context.Context, q question) (*found, error) {
	f, _, err := i.look(ctx, q, metav1.ListOptions{})
	return f, err
}

// look is ask with options of the list, and its resourceVersion.
func (i *informer) look(ctx context.Context, q question, opts metav1.ListOptions) (*found, uint64, error) {
	opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", q.ref.Name()).String()
	if q.selected {
		opts.LabelSelector = i.selection.LabelSelector
		if i.selection.FieldSelector != "" {
			opts.FieldSelector += "," + i.selection.FieldSelector
		}
	}
	if q.rv != 0 {
		opts.ResourceVersion, opts.ResourceVersionMatch = object.FormatVersion(q.rv), metav1.ResourceVersionMatchExact
	}
	r := i.newReader()
	var f *found
	foreign := false
	meta, err := i.page(ctx, q.ref.Namespace(), opts, func(raw []byte) error {
		obs, err := r.read(raw, false)
		switch {
		case errors.Is(err, errExcluded), err == nil && obs.object.Ref.Key != q.ref.Key:
			foreign = true
			return nil
		case err == nil:
			f = &found{object: obs.object, managers: keepManagers(r.scanned), outside: obs.outside}
		}
		return err
	})
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return nil, 0, apiserver.ErrUnanswerable
	case err != nil:
		return nil, 0, err
	case foreign, q.rv != 0 && (meta.ResourceVersion != object.FormatVersion(q.rv) || f != nil && f.object.ResourceVersion > q.rv):
		return nil, 0, apiserver.ErrUnanswerable // a server that does not know the field selector, or not Exact
	}
	at, err := apiserver.ListVersion(&meta)
	return f, at, err
}

// keepManagers copies the managers of what a Scanner has read.
func keepManagers(m *object.Scanned) *object.Scanned {
	kept := &object.Scanned{Managers: slices.Clone(m.Managers)}
	for k := range kept.Managers {
		f := &kept.Managers[k]
		for _, text := range []*[]byte{&f.Manager, &f.Operation, &f.Subresource, &f.Time} {
			*text = bytes.Clone(*text)
		}
	}
	return kept
}
