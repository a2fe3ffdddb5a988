package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// WatchGrace is how much longer than its timeout a watch may last. After that, the connection counts as dead.
	WatchGrace = 30 * time.Second
	// ShortWatch is how long a watch must have lasted for the next one to be opened without a growing delay.
	ShortWatch = time.Second
	// ProbeEvery is how often at most etcd's resourceVersion is read while nothing happens. A watch that is closed again and again must
	// not cost a list each time.
	ProbeEvery = time.Minute
	// ProbeTimeout limits such a probe, because a watch waits for it.
	ProbeTimeout = 10 * time.Second

	watchTimeout = 5 * time.Minute
)

// WatchTimeout returns the time after which an API server should end a watch: between 5 and 10 minutes, at random, so that not all
// watches are opened again at once.
func WatchTimeout() time.Duration { return watchTimeout + rand.N(watchTimeout) }

// Stream reads the frames of one watch, with time limits. It is for one goroutine.
type Stream struct {
	body   *limited
	frames *object.Frames
}

// Stream opens a watch of a resource in a namespace ("": all), with bookmarks and a timeout. bookmarks: an earlier watch of the resource
// has sent some, so Silence limits the time between two frames from the beginning. Otherwise it does after the first bookmark.
func (c *Client) Stream(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions, bookmarks bool) (*Stream, error) {
	timeout := WatchTimeout()
	o.AllowWatchBookmarks, o.TimeoutSeconds = true, new(int64(timeout.Seconds()))
	body, err := openLimited(ctx, timeout+WatchGrace, func(ctx context.Context) (io.ReadCloser, error) { return c.Watch(ctx, r, namespace, o) })
	if err != nil {
		return nil, err
	}
	body.eachRead = bookmarks
	return &Stream{body: body, frames: object.NewFrames(body, MaxObject)}, nil
}

// Next returns the type of the next frame (ADDED, MODIFIED, DELETED or BOOKMARK) and its object, which is valid until the next call. It
// returns an ERROR frame as the API error that the frame carries, and io.EOF if the watch has ended between two frames.
func (s *Stream) Next() (watch.EventType, []byte, error) {
	typ, raw, err := s.frames.Next()
	if err != nil {
		return "", nil, err
	}
	switch t := watch.EventType(typ); t {
	case watch.Bookmark:
		s.body.eachRead = true
		return t, raw, nil
	case watch.Added, watch.Modified, watch.Deleted:
		return t, raw, nil
	case watch.Error:
		var status metav1.Status
		if err := json.Unmarshal(raw, &status); err != nil {
			return "", nil, fmt.Errorf("error frame: %w", err)
		}
		return "", nil, &apierrors.StatusError{ErrStatus: status}
	default:
		return "", nil, fmt.Errorf("frame of unknown type %q", typ)
	}
}

// Close ends the watch.
func (s *Stream) Close() { s.body.close() }
