package scope

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// loadCreated reads a resource of which no object existed before its creation.
func (i *Informer) loadCreated(ctx context.Context) (uint64, error) {
	from := i.created
	// The bus may have events of an earlier resource of that name, with its history number.
	if _, err := i.askBus(ctx, from); err != nil {
		return 0, err
	}
	if h := i.lastEvent; h != nil {
		i.store.RaiseHistory(h.History)
		i.lastEvent = nil
	}
	if !i.store.IsLoaded() {
		i.state.setUnlisted(true) // that there is nothing is no list
		i.store.BeginList(store.AtCheckpoint)
		if i.spec.Snapshots == SnapshotNever {
			i.store.EndList(from)
		} else {
			i.store.EndList(from, i.store.NewSnapshot(from))
		}
	}
	i.store.BeginList(store.Relist)
	rv, err := i.pages(ctx, metav1.ListOptions{}, i.store.Compare)
	if err != nil {
		return 0, err
	}
	i.state.setUnlisted(false)
	if rv < from || i.store.WentBack() {
		// Etcd was restored, or there were objects before: it is read like any other resource.
		i.created = 0
		reason := object.Expired
		if rv < from {
			reason = object.Rewound
		}
		i.restart(reason)
		return 0, errRestart
	}
	if rv == from && i.store.Loss() == nil {
		i.store.EndList(rv)
	} else {
		i.store.Lose(store.Loss{From: from, Since: i.createdAt, Reason: object.Expired, SkipIfRecovered: true})
		i.store.EndList(rv, i.store.Gap(rv, func(ctx context.Context) (bool, bool, error) {
			whole, recovered, err := i.find(ctx, rv)
			if err == nil && !whole {
				i.log.Info("a resource was listed a while after its creation: objects that were created and deleted in between are not known", "scope", i.name,
					"from_rv", from, "to_rv", rv, "recovered", recovered)
			}
			return whole, recovered, err
		}))
	}
	i.created = 0
	return rv, nil
}
