package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// deniedRetry is the delay before the list of a forbidden or unserved resource is retried.
const deniedRetry = 5 * time.Minute

// errRewound makes another list necessary, as an expired watch does.
var errRewound = apierrors.NewResourceExpired("etcd was restored: its resourceVersion is lower than before")

// item has the fields that are read of a CustomResourceDefinition, an APIService or a Namespace.
// Package json ignores the case of their names. A list may have metadata only.
type item struct {
	Metadata struct {
		Name, UID         string
		ResourceVersion   uint64 `json:",string"`
		Generation        int64
		DeletionTimestamp *string
	}
	Spec struct {
		Group, Scope string
		Names        struct{ Plural, Kind string }
		Versions     []struct {
			Name            string
			Served, Storage bool
		}
		Service *struct{} // of an APIService
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

// hasCondition reports whether a condition is true.
func (i *item) hasCondition(condition string) bool {
	for _, c := range i.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// follower lists and watches a cluster-scoped resource. It stores no object.
type follower struct {
	client   *apiserver.Client
	log      *slog.Logger
	resource object.Resource
	accept   string // the media types of lists
	advice   string // in the log, if the resource may not be read
	// replace takes a complete list at resourceVersion rv, apply takes a later event of the watch
	// (Added, Modified or Deleted), and failed takes the error of a list.
	replace func(ctx context.Context, all []item, rv uint64)
	apply   func(ctx context.Context, typ watch.EventType, o *item)
	failed  func(ctx context.Context, err error)
	seen    func(at time.Time) // called after each list, frame and bookmark; may be nil

	denied    bool      // a refusal was logged
	expired   int       // lists in a row whose pages have expired
	bookmarks bool      // the watches send bookmarks
	probed    time.Time // time of the last read of etcd's resourceVersion
	doubtful  bool      // a watch has ended since
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	for b := retry.New(); ; {
		rv, err := f.list(ctx)
		if err != nil {
			err = fmt.Errorf("list %s: %w", f.resource.String(), err)
			f.failed(ctx, err)
		} else {
			f.denied = false
			opened := time.Now()
			if err = f.followWatches(ctx, rv); time.Since(opened) > apiserver.ShortWatch {
				b = retry.New()
			}
		}
		delay := b.Next(err)
		switch forbidden := apierrors.IsForbidden(err); {
		case ctx.Err() != nil || apiserver.IsGone(err):
		case forbidden || apierrors.IsNotFound(err):
			delay = deniedRetry
			if forbidden && !f.denied {
				f.denied = true
				f.log.Warn("not permitted to list and watch a resource", "resource", f.resource.String(), "advice",
					f.advice, "err", err)
			}
		default:
			f.log.Debug("list or watch failed, retrying", "resource", f.resource.String(), "err", err, "retry_in",
				delay)
		}
		if pause.For(ctx, delay) != nil {
			return
		}
	}
}

// expiredLists is how many lists in a row must expire between two pages, until one is made without
// pages.
const expiredLists = 3

// list reads all objects.
func (f *follower) list(ctx context.Context) (rv uint64, err error) {
	var all []item
	began := time.Now()
	each := func(raw []byte) error {
		all = append(all, item{})
		return json.Unmarshal(raw, &all[len(all)-1])
	}
	if f.expired == expiredLists {
		rv, err = f.client.Unpaged(ctx, &f.resource, "", f.accept, metav1.ListOptions{}, math.MaxInt, each)
	} else {
		rv, err = f.client.Pages(ctx, &f.resource, "", f.accept, metav1.ListOptions{}, each,
			func(*object.ListMeta) error { return nil })
	}
	switch {
	case err == nil:
		f.expired = 0
		f.replace(ctx, all, rv)
		f.noteSeen(began)
	case apiserver.Reason(err) == apiserver.ReasonExpired:
		f.expired++
	}
	return rv, err
}

// followWatches follows one watch after another from rv. An error means that a list is required, or
// that ctx has ended.
func (f *follower) followWatches(ctx context.Context, rv uint64) error {
	var stall apiserver.Stall
	b := retry.New()
	for {
		opened := time.Now()
		err := f.watch(ctx, &rv)
		if ctx.Err() != nil || apiserver.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return err
		}
		if apiserver.IsBroken(time.Since(opened), err) && stall.Add(rv) {
			return err
		}
		if time.Since(opened) > apiserver.ShortWatch {
			b = retry.New()
		}
		if !b.Wait(ctx, err) {
			return context.Cause(ctx)
		}
		// An API server may return with another history.
		f.doubtful = true
		if time.Since(f.probed) >= apiserver.ProbeEvery && f.probeRewound(ctx, rv) {
			return errRewound
		}
	}
}

// probeRewound asks the API server whether etcd's resourceVersion is lower than rv. If there is no
// answer, it returns false, and the doubt remains.
func (f *follower) probeRewound(ctx context.Context, rv uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, apiserver.ProbeTimeout)
	defer cancel()
	f.probed = time.Now()
	now, err := f.client.Latest(ctx, &f.resource, "", f.accept, metav1.ListOptions{})
	f.doubtful = err != nil
	return err == nil && now < rv
}

// watch follows one watch, and advances rv. It returns nil if the API server has ended the watch.
func (f *follower) watch(ctx context.Context, rv *uint64) error {
	s, err := f.client.Stream(ctx, &f.resource, "", metav1.ListOptions{ResourceVersion: object.FormatVersion(*rv)},
		f.bookmarks, false)
	if err != nil {
		return err
	}
	defer s.Close()
	for probed := false; ; {
		typ, raw, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		read := time.Now()
		var o item
		if err == nil {
			err = json.Unmarshal(raw, &o)
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", f.resource.String(), err)
		}
		if typ == watch.Bookmark {
			f.bookmarks = true
		} else {
			if f.doubtful && !probed && f.probeRewound(ctx, *rv) {
				return errRewound
			}
			probed = true // once per watch: without an answer, its objects are applied
			f.apply(ctx, typ, &o)
		}
		f.noteSeen(read)
		*rv = max(*rv, o.Metadata.ResourceVersion)
	}
}

func (f *follower) noteSeen(at time.Time) {
	if f.seen != nil {
		f.seen(at)
	}
}

// Event is a change: one of the following types.
type Event any

// DefinitionUpdated reports that a definition was created or changed. Changes include its status
// and a request to delete it.
type DefinitionUpdated struct {
	Name           string // plural.group
	SchemaChanged  bool   // its spec has changed. This is false for a new definition.
	StorageChanged bool   // SchemaChanged, and the version in which objects are stored may have changed
}

// DefinitionDeleted reports that a definition no longer existed at a resourceVersion. One of the
// same name may exist now.
type DefinitionDeleted struct {
	Name            string // plural.group
	ResourceVersion uint64
}

// APIServiceAvailable reports that another API server serves a group version. It did not before, or
// its APIService was different.
type APIServiceAvailable struct {
	Name string // version.group
}

// NamespacesChanged reports that the namespaces were listed, or that one was created or deleted.
type NamespacesChanged struct{}

// NamespacesUnavailable reports that the namespaces could not be listed. This is retried.
type NamespacesUnavailable struct{}

// Handler handles an event without any lock held. After it returns, the next event about the same
// kind of object is read.
type Handler func(ctx context.Context, ev Event)
