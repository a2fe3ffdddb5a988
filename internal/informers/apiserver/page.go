package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// PageSize is the number of objects in a page of a list.
	PageSize = 500
	// MaxObject limits one object or watch frame, in bytes. etcd's default limit is 1.5 MiB, which
	// operators can raise. A larger object means that the stream is broken.
	MaxObject = 256 << 20
	// pageWithin is the time limit of a page: enough for 500 objects of etcd's default limit at 3
	// MB/s.
	pageWithin = 5 * time.Minute
)

// Media types of a list.
const (
	JSON         = "application/json"
	MetadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// List reads one page of a list of a resource in a namespace ("": all), in the media types of
// accept. It calls each with the raw JSON of each object, which each must not keep. A refusal is an
// API Status error. An error of each ends the list.
func (c *Client) List(ctx context.Context, r *object.Resource, namespace, accept string, o metav1.ListOptions,
	each func(raw []byte) error,
) (object.ListMeta, error) {
	body, err := open(ctx, pageWithin, c.lists, r, namespace, accept, &o)
	if err != nil {
		return object.ListMeta{}, err
	}
	defer body.close()
	body.eachRead = true
	items := object.NewItems(body, MaxObject)
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

// Pages reads all pages of a list, as List does, and returns its resourceVersion. It calls page
// after each of them; an error of page ends the list.
func (c *Client) Pages(ctx context.Context, r *object.Resource, namespace, accept string, o metav1.ListOptions,
	each func(raw []byte) error, page func(meta *object.ListMeta) error,
) (rv uint64, err error) {
	o.Limit = PageSize
	for {
		meta, err := c.List(ctx, r, namespace, accept, o, each)
		if err == nil {
			err = page(&meta)
		}
		var at uint64
		if err == nil {
			at, err = ListVersion(&meta)
		}
		switch {
		case err != nil:
			return 0, err
		case rv != 0 && at != rv:
			return 0, fmt.Errorf("list: page at resourceVersion %d after pages at %d", at, rv)
		case meta.Continue == "":
			return at, nil
		}
		rv = at
		// the token has the resourceVersion
		o.Continue = meta.Continue
		o.ResourceVersion = ""
		o.ResourceVersionMatch = ""
	}
}

// Latest returns the current resourceVersion of etcd, from a list of one object.
func (c *Client) Latest(
	ctx context.Context, r *object.Resource, namespace, accept string, o metav1.ListOptions,
) (uint64, error) {
	o.Limit = 1
	meta, err := c.List(ctx, r, namespace, accept, o, func([]byte) error { return nil })
	if err != nil {
		return 0, err
	}
	return ListVersion(&meta)
}

// ListVersion returns the resourceVersion of a list. Its error is an ErrUnsupported.
func ListVersion(meta *object.ListMeta) (uint64, error) {
	rv, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil || rv == 0 {
		return 0,
			fmt.Errorf("%w: its list has the resourceVersion %q, which is not a number", ErrUnsupported,
				meta.ResourceVersion)
	}
	return rv, nil
}

// path returns the URL path of a resource in a namespace ("": all).
func path(r *object.Resource, namespace string) string {
	p := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		p = "/api/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.Name
}

const (
	// ShortWatch is how long a watch must have lasted for the next one to be opened without a
	// growing delay.
	ShortWatch = time.Second
	// ProbeEvery is the least interval between reads of etcd's resourceVersion while nothing
	// happens. A watch that is closed again and again must not cost a list each time.
	ProbeEvery = time.Minute
	// ProbeTimeout limits such a probe, because a watch waits for it.
	ProbeTimeout = 10 * time.Second

	// watchTimeout is the least time after which an API server should end a watch. The maximum is
	// twice as long, at random, so that not all watches are reopened at once.
	watchTimeout = 5 * time.Minute
	// watchEarly is how much earlier a watch may end and still have ended in time: clocks differ.
	watchEarly = 5 * time.Second
	// watchGrace is how much longer a watch may last. After that, the connection is considered
	// dead.
	watchGrace = 30 * time.Second
)

// Stream reads the frames of one watch, with time limits. Only Close may be called by other
// goroutines.
type Stream struct {
	Opened time.Time // when the server accepted the watch

	timeout time.Duration
	body    *limited
	frames  *object.Frames
}

// Stream opens a watch of a resource in a namespace ("": all), with bookmarks and a timeout, which
// is drawn unless o has one. bookmarks: an earlier watch of the resource sent some, so Silence
// limits the time between two frames from the start. Otherwise it does after the first bookmark.
// alone: the watch has its own connection, which a load balancer may connect to another API server.
func (c *Client) Stream(
	ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions, bookmarks, alone bool,
) (*Stream, error) {
	client, err := c.watchClient(alone)
	if err != nil {
		return nil, err
	}
	timeout := watchTimeout + rand.N(watchTimeout)
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	o.Watch = true
	o.AllowWatchBookmarks = true
	o.TimeoutSeconds = new(int64(timeout.Seconds()))
	body, err := open(ctx, timeout+watchGrace, client, r, namespace, JSON, &o)
	if err != nil {
		return nil, err
	}
	body.eachRead = bookmarks
	return &Stream{
		Opened:  time.Now(),
		timeout: timeout,
		body:    body,
		frames:  object.NewFrames(body, MaxObject),
	}, nil
}

// Ready reports whether Next will return a frame without reading from the connection.
func (s *Stream) Ready() bool { return s.frames.Ready() }

// EndsAt returns when the server is to end the watch because of its timeout.
func (s *Stream) EndsAt() time.Time { return s.Opened.Add(s.timeout) }

// EndsInTime reports whether the server may end the watch now because of its timeout.
func (s *Stream) EndsInTime() bool { return time.Since(s.Opened) > s.timeout-watchEarly }

// Next returns the type of the next frame (ADDED, MODIFIED, DELETED or BOOKMARK) and its object,
// which is valid until the next call. It returns an ERROR frame as the API error in it, and io.EOF
// if the watch has ended between two frames.
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

// Silence is how long a request may wait for the start of its response, and later for more data. A
// kube-apiserver ends a list itself after 60 s (--request-timeout), so its own error comes first.
// It sends a bookmark on a watch once a minute. But it sends neither bookmarks nor events if the
// watch begins at a resourceVersion that does not exist yet.
const Silence = 150 * time.Second

// limited is a response body with time limits. Silence limits the time until the response begins,
// and, if eachRead is set, each Read. Another limit applies to the whole request. Time in which the
// caller does not read counts only against that one.
type limited struct {
	eachRead bool

	ctx             context.Context //nolint:containedctx // the request's: its body is read after the call that made it
	end             context.CancelCauseFunc
	silence, within *time.Timer
	body            io.ReadCloser
}

// open sends the request for a list or a watch, and returns the body of the response. within limits
// the whole request.
func open(ctx context.Context, within time.Duration, c *rest.RESTClient, r *object.Resource, namespace, accept string,
	o *metav1.ListOptions,
) (_ *limited, err error) {
	ctx, end := context.WithCancelCause(ctx)
	l := &limited{
		ctx:     ctx,
		end:     end,
		silence: time.AfterFunc(Silence, func() { end(fmt.Errorf("%w for %v", ErrSilent, Silence)) }),
		within:  time.AfterFunc(within, func() { end(fmt.Errorf("%w within %v", errSlow, within)) }),
	}
	l.body, err = c.Get().AbsPath(path(r, namespace)).SetHeader("Accept", accept).
		SpecificallyVersionedParams(o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	l.silence.Stop()
	if err != nil {
		err = l.limitOr(err)
		l.stop()
		return nil, err
	}
	return l, nil
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if l.eachRead {
		l.silence.Reset(Silence)
		defer l.silence.Stop()
	}
	n, err := l.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = l.limitOr(err)
	}
	return n, err
}

func (l *limited) close() {
	l.stop()
	l.body.Close()
}

// limit limits the rest of the request.
func (l *limited) limit(within time.Duration) {
	l.within.Stop()
	l.within = time.AfterFunc(within, func() { l.end(fmt.Errorf("%w within %v", errSlow, within)) })
}

func (l *limited) stop() {
	l.silence.Stop()
	l.within.Stop()
	l.end(nil)
}

// limitOr returns the limit that caused err, or else err.
func (l *limited) limitOr(err error) error {
	if cause := context.Cause(l.ctx); IsUnanswered(cause) {
		return cause
	}
	return err
}
