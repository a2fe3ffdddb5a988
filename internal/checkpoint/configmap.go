package checkpoint

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// The keys of the ConfigMap. It has one of them.
const (
	plainKey      = "checkpoint.json"
	compressedKey = "checkpoint.json.gz" // in binaryData
)

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

const (
	// plainMax is the size up to which a checkpoint is stored uncompressed, so that people can read
	// it.
	plainMax = 256 << 10
	// compressedMax is the limit of a ConfigMap, about 20,000 scopes: an API server accepts 1 MiB
	// of data.
	compressedMax = 1_000_000
	// expandedMax bounds the result of decompression, since the content may be anything.
	expandedMax = 64 << 20
)

// configMap stores a checkpoint in a ConfigMap. A write keeps everything else in the object, and
// has the precondition that the object still has the resourceVersion that was read.
type configMap struct {
	client          *rest.RESTClient
	namespace, name string
	object          *configMapObject // as last read or written; nil if it did not exist
}

// configMapObject has the fields of a ConfigMap (k8s.io/api/core/v1).
type configMapObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Immutable  *bool             `json:"immutable,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

// NewConfigMap returns a store for a ConfigMap. It sends no request: the first Save creates the
// ConfigMap if necessary. The store needs the verbs get, create and update.
func NewConfigMap(config *rest.Config, namespace, name string) (Store, error) {
	c := dynamic.ConfigFor(config)
	c.AcceptContentTypes = "application/json" // whatever the feature gates say
	c.QPS = -1                                // the keeper sends at most one request every five seconds
	c.WarningHandler = rest.NoWarnings{}
	c.GroupVersion = nil
	c.APIPath = "/"
	c.Timeout = requestTimeout
	if _, _, err := rest.DefaultServerUrlFor(c); err != nil {
		// err repeats it, which may hold a password
		return nil, errors.New("the API server's address is neither a URL nor host:port")
	}
	httpClient, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the checkpoint: %w", err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(c, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of the checkpoint: %w", err)
	}
	return &configMap{client: client, namespace: namespace, name: name}, nil
}

// String implements Store.
func (c *configMap) String() string { return "checkpoint ConfigMap " + c.namespace + "/" + c.name }

// Lock implements Store. A ConfigMap has no lock: a second writer fails by the precondition.
func (c *configMap) Lock(context.Context) (unlock func() error, err error) {
	return func() error { return nil }, nil
}

// Load implements Store.
func (c *configMap) Load(ctx context.Context) ([]byte, error) {
	o, err := c.do(ctx, "get", c.client.Get().AbsPath(c.path()+"/"+c.name))
	if apierrors.IsNotFound(err) {
		c.object = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.object = o
	data, err := o.content()
	if err != nil {
		return nil, at(c, damaged(compressedKey+" cannot be expanded", err))
	}
	return data, nil
}

// Save implements Store.
func (c *configMap) Save(ctx context.Context, data []byte) error {
	var compressed []byte
	if len(data) > plainMax {
		var err error
		compressed, err = compress(data)
		if err != nil {
			return fmt.Errorf("%s: compress: %w", c, err)
		}
		if len(compressed) > compressedMax || len(data) > expandedMax {
			return &Error{
				Kind:   ErrTooLarge,
				Where:  c.String(),
				What:   fmt.Sprintf("%d bytes, compressed, exceed the limit of %d", len(compressed), compressedMax),
				Remedy: "store the checkpoint in a file, capture fewer resources and namespaces, or divide them among several agents",
			}
		}
	}
	return c.write(ctx, data, compressed)
}

// Delete implements Store. It removes only our keys: the ConfigMap may have others, and the agent
// may have no permission to create it again.
func (c *configMap) Delete(ctx context.Context) error {
	if c.object == nil {
		return nil
	}
	return c.write(ctx, nil, nil)
}

// write stores compressed, or plain if compressed is nil, or removes both keys if both are nil.
func (c *configMap) write(ctx context.Context, plain, compressed []byte) error {
	o := configMapObject{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Data:       map[string]string{},
		BinaryData: map[string][]byte{},
	}
	verb, request := "create", c.client.Post().AbsPath(c.path())
	if c.object == nil {
		o.Metadata, _ = json.Marshal(metav1.ObjectMeta{Namespace: c.namespace, Name: c.name})
	} else {
		verb, request = "update", c.client.Put().AbsPath(c.path()+"/"+c.name)
		o.Metadata, o.Immutable = c.object.Metadata, c.object.Immutable
		maps.Copy(o.Data, c.object.Data)
		maps.Copy(o.BinaryData, c.object.BinaryData)
	}
	delete(o.Data, plainKey)
	delete(o.BinaryData, compressedKey)
	switch {
	case compressed != nil:
		o.BinaryData[compressedKey] = compressed
	case plain != nil:
		o.Data[plainKey] = string(plain)
	}
	body, err := json.Marshal(&o)
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	written, err := c.do(ctx, verb, request.Body(body))
	if err == nil {
		c.object = written
	}
	return err
}

// OfConfigMap returns the checkpoint in a ConfigMap, given as JSON, and nil if it has none that
// this release can read.
func OfConfigMap(raw []byte) *Document {
	var o configMapObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil
	}
	data, err := o.content()
	if err != nil || data == nil {
		return nil
	}
	d, err := Decode(data)
	if err != nil {
		return nil
	}
	return d
}

// content returns the stored checkpoint, nil if there is none.
func (o *configMapObject) content() ([]byte, error) {
	if compressed, ok := o.BinaryData[compressedKey]; ok {
		return expand(compressed)
	}
	if plain, ok := o.Data[plainKey]; ok {
		return []byte(plain), nil
	}
	return nil, nil
}

func (c *configMap) path() string { return "/api/v1/namespaces/" + c.namespace + "/configmaps" }

// do sends a request and classifies its error: transient, conflict, or refused. The NotFound error
// of a get is returned unchanged.
func (c *configMap) do(ctx context.Context, verb string, r *rest.Request) (*configMapObject, error) {
	// The caller retries, with the newest content.
	result := r.MaxRetries(0).SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json").
		Do(ctx)
	if err := result.Error(); err != nil {
		return nil, c.explain(verb, err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, c.explain(verb, err)
	}
	o := new(configMapObject)
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("%s: %s: the response is not a ConfigMap: %w", c, verb, err)
	}
	return o, nil
}

func (c *configMap) explain(verb string, err error) error {
	refused := func(what, remedy string) error {
		return &Error{
			Kind:   ErrRefused,
			Where:  c.String(),
			What:   what,
			Err:    err,
			Remedy: remedy,
		}
	}
	switch {
	case apierrors.IsNotFound(err) && verb == "create":
		return refused(fmt.Sprintf("namespace %s does not exist", c.namespace),
			fmt.Sprintf("create it ('kubectl create namespace %s'), or name another checkpoint in the configuration",
				c.namespace))
	case apierrors.IsNotFound(err) && verb == "get":
		return err
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &Error{
			Kind:   ErrConflict,
			Where:  c.String(),
			What:   "another client wrote or removed it",
			Err:    err,
			Remedy: oneAgent,
		}
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return refused(fmt.Sprintf("namespace %s is being deleted", c.namespace),
			"name another checkpoint in the configuration")
	case apierrors.IsForbidden(err):
		return refused(fmt.Sprintf("not permitted to %s configmaps in namespace %s", verb, c.namespace),
			"'kubecdc rbac', with the same --config, prints the required role")
	case apierrors.IsUnauthorized(err):
		return refused("the API server rejects the credentials", "renew those of the kubeconfig or service account")
	case apierrors.IsRequestEntityTooLargeError(err):
		return &Error{
			Kind:   ErrTooLarge,
			Where:  c.String(),
			What:   "the API server rejects its size",
			Err:    err,
			Remedy: "store the checkpoint in a file",
		}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refused("the API server rejects it",
			"repair the object (if it is immutable, delete it), or name another checkpoint in the configuration")
	}
	return fmt.Errorf("%s: %s: %w", c, verb, err)
}

func compress(data []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func expand(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, expandedMax+1))
	if err == nil && len(data) > expandedMax {
		err = fmt.Errorf("more than %d bytes", expandedMax)
	}
	return data, err
}
