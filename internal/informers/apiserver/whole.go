package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// An API server reads each page of a list from etcd at the resourceVersion of the first. If etcd is
// compacted before the last page, the list begins again, perhaps each time. Two other requests
// return all objects of one resourceVersion: a watch that begins with them, and a list without
// pages.

// ErrTooMany means that a list without pages has more objects than its caller takes.
var ErrTooMany = errors.New("too many objects for one list without pages")

// ErrNotStreamed means that the API server does not begin a watch with the existing objects.
var ErrNotStreamed = errors.New("the API server does not stream a list")

// Streamed reads the objects of a resource in a namespace ("": all) as the initial events of a
// watch (sendInitialEvents, KEP-3157), and returns their resourceVersion. It passes the raw JSON of
// each object to each, which must not keep it. The error is ErrNotStreamed if the API server does
// not support that.
func (c *Client) Streamed(ctx context.Context, r *object.Resource, namespace string, o metav1.ListOptions, each func(raw []byte) error) (uint64, error) {
	o.SendInitialEvents, o.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	s, err := c.Stream(ctx, r, namespace, o, true, false)
	if err != nil {
		return 0, notStreamed(err)
	}
	defer s.Close()
	for {
		typ, raw, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return 0, fmt.Errorf("%w: the watch has ended", ErrNotStreamed)
		case err != nil:
			return 0, notStreamed(err)
		case typ == watch.Bookmark:
			return endOfStream(raw)
		case typ != watch.Added:
			return 0, fmt.Errorf("%w: it begins with %s", ErrNotStreamed, typ)
		}
		if err := each(raw); err != nil {
			return 0, fmt.Errorf("list: %w", err)
		}
	}
}

// notStreamed returns err, as an ErrNotStreamed unless another attempt may succeed.
func notStreamed(err error) error {
	if IsTemporary(err) && !IsUnanswered(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStreamed, err)
}

// endOfStream returns the resourceVersion of the bookmark that follows the initial events. Other
// bookmarks do not precede it.
func endOfStream(raw []byte) (uint64, error) {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &m); err != nil {
		return 0, fmt.Errorf("bookmark: %w", err)
	}
	if m.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		return 0, fmt.Errorf("%w: a bookmark does not end the existing objects", ErrNotStreamed)
	}
	return ListVersion(&object.ListMeta{ResourceVersion: m.ResourceVersion})
}

// Unpaged reads a list without pages, of at most most objects, as List does, and returns its
// resourceVersion. The error is ErrTooMany if there are more.
func (c *Client) Unpaged(ctx context.Context, r *object.Resource, namespace, accept string, o metav1.ListOptions, most int, each func(raw []byte) error,
) (uint64, error) {
	n := 0
	meta, err := c.List(ctx, r, namespace, accept, o, func(raw []byte) error {
		if n++; n > most {
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
