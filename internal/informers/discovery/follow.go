package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// deniedRetry is how often a list is retried of a resource that is forbidden or not served.
	deniedRetry = 5 * time.Minute
	// watchTimeout is how long an HTTP watch lasts at least; up to twice that, so that a fleet of them spreads.
	watchTimeout = 5 * time.Minute
	// watchGrace is how much longer it may last until it is taken for dead.
	watchGrace = 30 * time.Second
	// shortWatch is how long an HTTP watch must have lasted for the next one to be opened without a growing delay.
	shortWatch = time.Second
	// probeEvery is how often etcd's resourceVersion is asked for at most while nothing happens: a watch that is closed all the time must
	// not cost a list each time.
	probeEvery = time.Minute
)

var errRewound = errors.New("etcd was restored: its resourceVersion is lower than before")

// objectMeta is the metadata of an object that matters here.
type objectMeta struct {
	Name              string  `json:"name"`
	UID               string  `json:"uid"`
	ResourceVersion   uint64  `json:"resourceVersion,string"`
	Generation        int64   `json:"generation"`
	DeletionTimestamp *string `json:"deletionTimestamp"`
}

// follower lists and watches a cluster-scoped resource, and decodes its objects from JSON as T. It keeps none of them.
type follower[T any] struct {
	client   *apiserver.Client
	log      *slog.Logger
	resource object.Resource
	accept   string // the media types of lists
	// replace takes a whole list, of resourceVersion rv; apply an event of the watch after it (Added, Modified or Deleted); failed the
	// error of a list. denied logs that the resource may not be read: once until it can be listed.
	replace func(ctx context.Context, all []T, rv uint64)
	apply   func(ctx context.Context, typ watch.EventType, item *T)
	failed  func(ctx context.Context, err error)
	denied  func(err error)

	deniedSaid bool
	probed     time.Time // when etcd's resourceVersion was asked for last
	doubtful   bool      // a watch has ended since
}

// run follows until ctx ends.
func (f *follower[T]) run(ctx context.Context) {
	b := retry.New()
	for ctx.Err() == nil {
		rv, err := f.list(ctx)
		if err == nil {
			b, f.deniedSaid = retry.New(), false
			err = f.watches(ctx, rv)
		} else {
			f.failed(ctx, err)
		}
		if ctx.Err() != nil {
			return
		}
		delay := b.Next(err)
		switch {
		case apiserver.IsGone(err):
		case apierrors.IsForbidden(err):
			if delay = deniedRetry; !f.deniedSaid {
				f.deniedSaid = true
				f.denied(err)
			}
		case apierrors.IsNotFound(err):
			delay = deniedRetry
		default:
			f.log.Debug("cannot follow a resource, retrying", "resource", f.resource.String(), "err", err, "retry_in", delay)
		}
		if !retry.Sleep(ctx, delay) {
			return
		}
	}
}

// list reads all objects.
func (f *follower[T]) list(ctx context.Context) (rv uint64, err error) {
	var all []T
	o := metav1.ListOptions{Limit: apiserver.PageSize}
	for {
		meta, err := f.page(ctx, o, func(raw []byte) error {
			var item T
			err := json.Unmarshal(raw, &item)
			all = append(all, item)
			return err
		})
		if err == nil {
			rv, err = apiserver.ListVersion(&meta)
		}
		if err != nil {
			return 0, err
		}
		if o.Continue = meta.Continue; o.Continue == "" {
			f.replace(ctx, all, rv)
			return rv, nil
		}
	}
}

// page reads one page of a list.
func (f *follower[T]) page(ctx context.Context, o metav1.ListOptions, each func(raw []byte) error) (object.ListMeta, error) {
	meta, err := f.client.List(ctx, &f.resource, "", f.accept, o, each)
	if err != nil {
		return meta, fmt.Errorf("%s: %w", f.resource.String(), err)
	}
	return meta, nil
}

// watches follows one HTTP watch after the other from rv. Its error says that a list is needed, or that ctx ended.
func (f *follower[T]) watches(ctx context.Context, rv uint64) error {
	b := retry.New()
	for {
		opened := time.Now()
		err := f.watch(ctx, &rv)
		if ctx.Err() != nil || apiserver.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return err
		}
		if time.Since(opened) > shortWatch {
			b = retry.New()
		}
		if !b.Wait(ctx, err) {
			return context.Cause(ctx)
		}
		// An API server that was away may have come back with another history.
		f.doubtful = true
		if time.Since(f.probed) >= probeEvery && f.rewound(ctx, rv) {
			return apierrors.NewResourceExpired(errRewound.Error())
		}
	}
}

// rewound reports whether etcd's resourceVersion is lower than rv. Where there is no answer, nothing is claimed, and the doubt remains.
func (f *follower[T]) rewound(ctx context.Context, rv uint64) bool {
	f.probed = time.Now()
	meta, err := f.page(ctx, metav1.ListOptions{Limit: 1}, func([]byte) error { return nil })
	if err != nil {
		return false
	}
	now, err := apiserver.ListVersion(&meta)
	f.doubtful = err != nil
	return err == nil && now < rv
}

// watch follows one HTTP watch, and advances rv. A nil error: it ended cleanly.
func (f *follower[T]) watch(ctx context.Context, rv *uint64) error {
	timeout := watchTimeout + rand.N(watchTimeout)
	seconds := int64(timeout.Seconds())
	ctx, cancel := context.WithTimeout(ctx, timeout+watchGrace)
	defer cancel()
	body, err := f.client.Watch(ctx, &f.resource, "", metav1.ListOptions{
		ResourceVersion: object.FormatVersion(*rv), AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer body.Close()
	probed := false // an object has waited for a probe
	frames := object.NewFrames(body, apiserver.MaxObject)
	for {
		typ, raw, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", f.resource.String(), err)
		}
		switch t := watch.EventType(typ); t {
		case watch.Error:
			var s metav1.Status
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("watch %s: error frame: %w", f.resource.String(), err)
			}
			return &apierrors.StatusError{ErrStatus: s}
		case watch.Added, watch.Modified, watch.Deleted:
			if f.doubtful && !probed && f.rewound(ctx, *rv) {
				return apierrors.NewResourceExpired(errRewound.Error())
			}
			probed = true
			var item T
			if err := json.Unmarshal(raw, &item); err != nil {
				return fmt.Errorf("watch %s: %w", f.resource.String(), err)
			}
			f.apply(ctx, t, &item)
		case watch.Bookmark:
		}
		var m struct {
			Metadata objectMeta `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("watch %s: %w", f.resource.String(), err)
		}
		*rv = m.Metadata.ResourceVersion
	}
}
