package informers

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

// lookoutDenied is how often a lookout asks again what it may not read, or what is not served.
const lookoutDenied = 5 * time.Minute

// lookout follows a cluster-scoped resource for the set's own use: it keeps nothing and sends nothing. Who uses it keeps what is
// needed.
type lookout struct {
	client   *apiserver.Client
	log      *slog.Logger
	resource object.Resource
	accept   string // the media types of lists
	// begin is called before a list, item for each object of it, end behind it, with its resourceVersion; event for each event of
	// the watch behind it. raw is not kept. failed is called when a list has failed. All but item and event may be nil.
	begin  func()
	item   func(raw []byte) error
	end    func(rv uint64)
	event  func(typ watch.EventType, raw []byte) error
	failed func()
	absent func() // as failed, where the resource is not served

	probed   time.Time // when it was asked last whether history is the one before
	doubtful bool      // a watch has ended since

	refused func(err error) // says that it may not be read; nil: that is said as of what is defined
	denied  bool            // that was said
}

// run follows until ctx ends.
func (l *lookout) run(ctx context.Context) {
	b := retry.New()
	for ctx.Err() == nil {
		rv, err := l.list(ctx)
		if err == nil {
			b = retry.New()
			l.denied = false
			err = l.watches(ctx, rv)
		} else {
			if l.absent != nil && apierrors.IsNotFound(err) {
				l.absent()
			}
			if l.failed != nil {
				l.failed()
			}
		}
		if ctx.Err() != nil {
			return
		}
		delay := b.Next(err)
		switch {
		case apiserver.IsGone(err):
		case apierrors.IsForbidden(err):
			delay = lookoutDenied
			switch {
			case l.denied:
			case l.refused != nil:
				l.refused(err)
			default:
				l.log.Warn("not permitted to watch what is defined: new resources are found by discovery alone, and their first objects are "+
					"read rather than told of as created; grant list and watch on the resource ('kubecdc rbac' prints the role that is needed)",
					"resource", l.resource.String(), "every", rediscoverEvery, "err", err)
			}
			l.denied = true
		case apierrors.IsNotFound(err):
			delay = lookoutDenied
		default:
			l.log.Debug("cannot watch what is defined, retrying", "resource", l.resource.String(), "err", err, "retry_in", delay)
		}
		if !retry.Sleep(ctx, delay) {
			return
		}
	}
}

// list reads all objects.
func (l *lookout) list(ctx context.Context) (rv uint64, err error) {
	if l.begin != nil {
		l.begin()
	}
	o := metav1.ListOptions{Limit: apiserver.PageSize}
	for {
		meta, err := l.page(ctx, o)
		if err != nil {
			return 0, err
		}
		if rv, err = apiserver.ListVersion(&meta); err != nil {
			return 0, err
		}
		if o.Continue = meta.Continue; o.Continue == "" {
			break
		}
	}
	if l.end != nil {
		l.end(rv)
	}
	return rv, nil
}

// page reads one page of a list.
func (l *lookout) page(ctx context.Context, o metav1.ListOptions) (object.ListMeta, error) {
	meta, err := l.client.List(ctx, &l.resource, "", l.accept, o, l.item)
	if err != nil {
		return meta, fmt.Errorf("%s: %w", l.resource.String(), err)
	}
	return meta, nil
}

// watches follows one HTTP watch after the other from rv. Its error says that a list is needed, or that ctx ended.
func (l *lookout) watches(ctx context.Context, rv uint64) error {
	b := retry.New()
	for {
		opened := time.Now()
		err := l.watch(ctx, &rv)
		if ctx.Err() != nil || apiserver.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return err
		}
		if time.Since(opened) > shortWatch {
			b = retry.New()
		}
		if !b.Wait(ctx, err) {
			return context.Cause(ctx)
		}
		// Who was away may have come back with another history.
		l.doubtful = true
		if time.Since(l.probed) >= probeEvery && l.rewound(ctx, rv) {
			return apierrors.NewResourceExpired(errRewound.Error())
		}
	}
}

// rewound reports whether history has not come to rv. Where there is no answer, nothing is claimed, and the doubt remains.
func (l *lookout) rewound(ctx context.Context, rv uint64) bool {
	l.probed = time.Now()
	meta, err := (&lookout{client: l.client, resource: l.resource, accept: l.accept, item: func([]byte) error { return nil }}).
		page(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false
	}
	now, err := apiserver.ListVersion(&meta)
	l.doubtful = err != nil
	return err == nil && now < rv
}

// watch follows one HTTP watch. rv moves along. A nil error: it ended cleanly.
func (l *lookout) watch(ctx context.Context, rv *uint64) error {
	timeout := watchTimeout + rand.N(watchTimeout)
	seconds := int64(timeout.Seconds())
	ctx, cancel := context.WithTimeout(ctx, timeout+watchGrace)
	defer cancel()
	body, err := l.client.Watch(ctx, &l.resource, "", metav1.ListOptions{
		ResourceVersion: object.FormatVersion(*rv), AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer body.Close()
	waited := false // an object has waited for a probe
	frames := object.NewFrames(body, apiserver.MaxObject)
	for {
		typ, raw, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", l.resource.String(), err)
		}
		switch t := watch.EventType(typ); t {
		case watch.Error:
			var s metav1.Status
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("error frame: %w", err)
			}
			return &apierrors.StatusError{ErrStatus: s}
		case watch.Added, watch.Modified, watch.Deleted:
			if l.doubtful && !waited && l.rewound(ctx, *rv) {
				return apierrors.NewResourceExpired(errRewound.Error())
			}
			waited = true
			if err := l.event(t, raw); err != nil {
				return err
			}
		case watch.Bookmark:
		}
		var m struct {
			Metadata struct {
				ResourceVersion uint64 `json:"resourceVersion,string"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("watch %s: %w", l.resource.String(), err)
		}
		*rv = m.Metadata.ResourceVersion
	}
}
