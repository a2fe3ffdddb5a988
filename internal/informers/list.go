package informers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubecdc/kubecdc/internal/object"
)

// pageSize is the number of objects asked for at a time.
const pageSize = 500

// List implements cache.ListerWatcher; the reflector calls ListWithContext.
func (i *informer) List(o metav1.ListOptions) (runtime.Object, error) {
	return i.ListWithContext(context.Background(), o)
}

// ListWithContext loads the store with a fresh list, page by page, until one succeeds, and returns an empty list that
// carries its resourceVersion. The options are the reflector's guess (resourceVersion 0 would make the server ignore
// the limit) and not used.
func (i *informer) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	// The reflector lists in a goroutine that it does not wait for.
	if !i.readers.enter() {
		return nil, errEnded
	}
	defer i.readers.leave()

	cause := "start"
	if i.state.synced() {
		cause = "expired"
	}
	b := newBackoff()
	for {
		i.metrics.lists.WithLabelValues(cause).Inc()
		rv, err := i.load(ctx)
		if err == nil {
			i.delivered.Store(rv)
			i.metrics.synced.Set(1)
			i.state.listed()
			i.recovered()
			i.seen(time.Now())
			return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: object.FormatVersion(rv)}}, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		cause = "retry"
		delay := b.next(err)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || errors.Is(err, errRefused) {
			delay = max(delay, time.Second) // nothing that the next instant mends
		}
		i.failed(ctx, "list", err, delay)
		if !sleep(ctx, delay) {
			return nil, context.Cause(ctx)
		}
	}
}

// load reads one list into the store and has it announced. The store is told to begin again if it fails half-way.
func (i *informer) load(ctx context.Context) (uint64, error) {
	select {
	case i.listSlots <- struct{}{}:
		defer func() { <-i.listSlots }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	i.state.setReading(true)
	defer i.state.setReading(false)
	relist := i.state.synced()
	i.store.beginList()
	loaded := 0
	r := i.newReader()
	o := metav1.ListOptions{Limit: pageSize, LabelSelector: i.labels, FieldSelector: i.fields}
	var rv uint64
	for {
		meta, err := i.page(ctx, i.namespace, o, func(raw []byte) error {
			obs, err := r.read(raw, false)
			if errors.Is(err, errExcluded) {
				return nil
			}
			if err == nil {
				i.store.load(obs.object, i.snapshots != SnapshotNever)
				loaded++
			}
			return err
		})
		if err != nil {
			return 0, err
		}
		at, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
		if err != nil || at == 0 {
			return 0, fmt.Errorf("%w: its list has the resourceVersion %q, which is not a number", errRefused, meta.ResourceVersion)
		}
		if rv != 0 && at != rv {
			return 0, fmt.Errorf("list: page at resourceVersion %d after pages at %d", at, rv)
		}
		rv = at
		if meta.RemainingItemCount > 0 {
			i.state.expect(loaded + int(meta.RemainingItemCount))
		}
		if meta.Continue == "" {
			break
		}
		o.Continue = meta.Continue
	}
	if relist {
		i.announceGap(rv)
	} else {
		i.announceSnapshot(rv)
	}
	return rv, nil
}

// page reads one page of a list in namespace ("": all), item by item.
func (i *informer) page(ctx context.Context, namespace string, o metav1.ListOptions, each func(raw []byte) error) (object.ListMeta, error) {
	body, err := i.client.list(ctx, i.resource, namespace, o)
	if err != nil {
		return object.ListMeta{}, err
	}
	defer body.Close()
	items := object.NewItems(body, maxObject)
	for {
		raw, err := items.Next()
		if errors.Is(err, io.EOF) {
			return items.Meta(), nil
		}
		if err == nil {
			err = each(raw)
		}
		if err != nil {
			return object.ListMeta{}, fmt.Errorf("list: %w", err)
		}
	}
}

// announceSnapshot completes the first list.
func (i *informer) announceSnapshot(rv uint64) {
	if i.snapshots == SnapshotNever {
		i.store.endList(rv, nil, nil)
		return
	}
	snap := newSnapshot(time.Now().UTC().Format("20060102T150405Z")+"-"+object.FormatVersion(rv), rv)
	i.store.endList(rv, func(objects int) *object.StreamEvent {
		return &object.StreamEvent{
			Kind: object.SnapshotStarted, Resource: i.resource, Scope: i.scope,
			Snapshot: snap.id, ResourceVersion: rv, Objects: objects,
		}
	}, snap)
	i.log.Debug("snapshot started", "scope", i.scope, "snapshot", snap.id, "rv", rv)
}

// announceGap completes a list after history was lost.
func (i *informer) announceGap(rv uint64) {
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: i.resource, Scope: i.scope,
		From: i.delivered.Load(), To: rv, Since: i.state.lastSeen(), Reason: "expired",
	}
	if rv < gap.From {
		gap.Reason = "rewound"
	}
	if rv == gap.From {
		i.store.endList(rv, nil, nil) // nothing happened in between
		return
	}
	due := 0
	i.store.endList(rv, func(objects int) *object.StreamEvent {
		due = objects
		return gap
	}, nil)
	i.metrics.gaps.WithLabelValues(gap.Reason).Inc()
	i.log.Warn("history was lost: a gap is announced and the state brought up to date", "scope", i.scope,
		"from_rv", gap.From, "to_rv", gap.To, "reason", gap.Reason, "since", gap.Since, "inferred", due)
}
