package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// An API server reads each page of a list from etcd at the resourceVersion of the first page. If
// etcd is compacted before the last page, the list begins again, and that may repeat each time. Two
// other requests return all objects of one resourceVersion: a watch that begins with them, and a
// list without pages.

// ErrTooMany means that a list without pages has more objects than its caller takes.
var ErrTooMany = errors.New("too many objects for one list without pages")

// ErrNotStreamed means that the API server does not begin a watch with the existing objects.
var ErrNotStreamed = errors.New("the API server does not stream a list")

// ErrNoEnd means that an API server sends no bookmark that ends the existing objects.
var ErrNoEnd = errors.New("a bookmark does not end the existing objects")

// ErrCut means that a watch has ended before it had sent the existing objects.
var ErrCut = errors.New("the API server has ended the watch before it had sent all objects")

// Initial opens a watch that begins with the existing objects (sendInitialEvents, KEP-3157), reads
// these, and returns the watch and their resourceVersion. It passes the type and the raw JSON of
// each frame to each, which must not keep it. Changes that come meanwhile may be among them, of any
// type. The changes of one object are in their order; different objects are in any order. Until the
// resourceVersion, the watch has the time limits of a page. Then it continues. bookmarks: see
// Stream.
//
// The error is ErrNotStreamed if the API server does not support that, and ErrCut if it ends the
// watch earlier.
func (c *Client) Initial(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions,
	bookmarks bool,
	each func(typ watch.EventType, raw []byte) error,
) (_ *Stream, rv uint64, err error) {
	o.SendInitialEvents, o.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	s, err := c.Stream(ctx, r, namespace, o, true, false)
	if err != nil {
		return nil, 0, notStreamed(err)
	}
	s.body.limit(pageWithin)
	rv, err = s.initial(each)
	if err != nil {
		s.Close()
		return nil, 0, err
	}
	s.body.limit(time.Until(s.EndsAt()) + watchGrace)
	s.body.eachRead = bookmarks // the bookmark of the initial objects does not show that others follow
	return s, rv, nil
}

// initial reads the existing objects, up to the bookmark that ends them.
func (s *Stream) initial(each func(typ watch.EventType, raw []byte) error) (uint64, error) {
	for {
		typ, raw, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return 0, ErrCut
		case err != nil:
			return 0, notStreamed(err)
		case typ == watch.Bookmark:
			return endOfStream(raw)
		}
		if err := each(typ, raw); err != nil {
			return 0, fmt.Errorf("list: %w", err)
		}
	}
}

// Streamed does what Initial does, but ends the watch after the objects.
func (c *Client) Streamed(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions,
	each func(typ watch.EventType, raw []byte) error,
) (uint64, error) {
	s, rv, err := c.Initial(ctx, r, namespace, o, true, each)
	if err != nil {
		return 0, err
	}
	s.Close()
	return rv, nil
}

// notStreamed returns err, as an ErrNotStreamed unless another attempt may succeed.
func notStreamed(err error) error {
	if IsTemporary(err) && !IsUnanswered(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStreamed, err)
}

// endOfStream returns the resourceVersion of the bookmark that follows the initial events. No other
// bookmark precedes it.
func endOfStream(raw []byte) (uint64, error) {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &m); err != nil {
		return 0, fmt.Errorf("bookmark: %w", err)
	}
	if m.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		return 0, fmt.Errorf("%w: %w", ErrNotStreamed, ErrNoEnd)
	}
	return ListVersion(&object.ListMeta{ResourceVersion: m.ResourceVersion})
}

// Unpaged reads a list without pages, of at most most objects, as List does, and returns its
// resourceVersion. The error is ErrTooMany if there are more.
func (c *Client) Unpaged(ctx context.Context, r *object.Resource, namespace, accept string, o metav1.ListOptions,
	most int, each func(raw []byte) error,
) (uint64, error) {
	n := 0
	meta, err := c.List(ctx, r, namespace, accept, o, func(raw []byte) error {
		n++
		if n > most {
			return fmt.Errorf("%w: more than %d", ErrTooMany, most)
		}
		return each(raw)
	})
	switch {
	case err != nil:
		return 0, err
	case meta.Continue != "":
		return 0, fmt.Errorf("%w: the API server returns pages nevertheless", ErrTooMany)
	}
	return ListVersion(&meta)
}
