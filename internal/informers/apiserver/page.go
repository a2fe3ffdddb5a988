package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// PageSize is the number of objects in a page of a list.
	PageSize = 500
	// MaxObject limits one object or watch frame, in bytes. etcd's default limit is 1.5 MiB, which operators can raise. A larger object
	// means that the stream is broken.
	MaxObject = 256 << 20
	// pageWithin is how long a page may take: enough for 500 objects of etcd's default limit at 3 MB/s.
	pageWithin = 5 * time.Minute
)

// Media types of a list.
const (
	JSON         = "application/json"
	MetadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// List reads one page of a list of a resource in a namespace ("": all), in the media types of accept. It calls each with the raw JSON of
// each object, which each must not keep. A refusal is an API Status error. An error of each ends the list.
func (c *Client) List(ctx context.Context, r *object.Resource, namespace, accept string, o metav1.ListOptions, each func(raw []byte) error,
) (object.ListMeta, error) {
	body, err := openLimited(ctx, pageWithin, func(ctx context.Context) (io.ReadCloser, error) { return open(ctx, c.lists, r, namespace, accept, o) })
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

// ListVersion returns the resourceVersion of a list. Its error is an ErrUnsupported.
func ListVersion(meta *object.ListMeta) (uint64, error) {
	rv, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil || rv == 0 {
		return 0, fmt.Errorf("%w: its list has the resourceVersion %q, which is not a number", ErrUnsupported, meta.ResourceVersion)
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

// parameters returns the version in which list options are encoded in a URL.
func parameters() schema.GroupVersion { return schema.GroupVersion{Version: "v1"} }
