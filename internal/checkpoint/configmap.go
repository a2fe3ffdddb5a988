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

// The keys of a ConfigMap. One of them is there.
const (
	plainKey      = "checkpoint.json"
	compressedKey = "checkpoint.json.gz" // in binaryData
)

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

const (
	// plainMax is up to which size a checkpoint is plain: for people who look.
	plainMax = 256 << 10
	// compressedMax is what fits: an API server takes 1 MiB of data in a ConfigMap. Some 20,000 scopes are that much.
	compressedMax = 1_000_000
	// expandedMax bounds what is made of compressed data that may be anything.
	expandedMax = 64 << 20
)

// configMap is a checkpoint in a ConfigMap. What others put on that object stays: it is written as it was read, but for our
// keys, and on condition that it still has the resourceVersion that was read.
type configMap struct {
	client          *rest.RESTClient
	namespace, name string
	object          *configMapObject // as it was read or written last, nil: there was none
}

// configMapObject is what a ConfigMap has (k8s.io/api/core/v1).
type configMapObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Immutable  *bool             `json:"immutable,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

// NewConfigMap returns the store of a checkpoint in a ConfigMap. It asks nothing yet: the first save makes the ConfigMap
// where there is none. It needs the verbs get, create and update.
func NewConfigMap(config *rest.Config, namespace, name string) (Store, error) {
	c := dynamic.ConfigFor(config)
	c.AcceptContentTypes = "application/json" // whatever the feature gates say
	c.QPS = -1                                // a request each five seconds, at most
	c.WarningHandler = rest.NoWarnings{}
	c.GroupVersion = nil
	c.APIPath = "/"
	c.Timeout = requestTimeout
	if _, _, err := rest.DefaultServerUrlFor(c); err != nil {
		return nil, errors.New("the API server's address is neither a URL nor host:port") // err repeats it, which may hold a password
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

// Lock implements Store. There is none: who writes on the heels of another finds out by the resourceVersion.
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
	if compressed, ok := o.BinaryData[compressedKey]; ok {
		data, err := expand(compressed)
		if err != nil {
			return nil, at(c, damaged(compressedKey+" cannot be expanded", err))
		}
		return data, nil
	}
	if plain, ok := o.Data[plainKey]; ok {
		return []byte(plain), nil
	}
	return nil, nil
}

// Save implements Store.
func (c *configMap) Save(ctx context.Context, data []byte) error {
	var compressed []byte
	if len(data) > plainMax {
		var err error
		if compressed, err = compress(data); err != nil {
			return fmt.Errorf("%s: compress: %w", c, err)
		}
		if len(compressed) > compressedMax || len(data) > expandedMax {
			return &Error{
				Kind: ErrTooLarge, Where: c.String(), What: fmt.Sprintf("%d bytes, compressed, do not fit, %d do", len(compressed), compressedMax),
				Remedy: "keep the checkpoint in a file, capture fewer resources and namespaces, or have several agents share them",
			}
		}
	}
	return c.write(ctx, data, compressed)
}

// Delete implements Store. The ConfigMap stays, without our keys: whoever made it may have put more into it, and the agent
// may be permitted to update it, but not to create it again.
func (c *configMap) Delete(ctx context.Context) error {
	if c.object == nil {
		return nil
	}
	return c.write(ctx, nil, nil)
}

// write puts compressed there, where there is none plain, where there is none nothing.
func (c *configMap) write(ctx context.Context, plain, compressed []byte) error {
	o := configMapObject{APIVersion: "v1", Kind: "ConfigMap", Data: map[string]string{}, BinaryData: map[string][]byte{}}
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

func (c *configMap) path() string { return "/api/v1/namespaces/" + c.namespace + "/configmaps" }

// do sends a request and tells apart what may pass, what is a conflict, and what is refused. That a ConfigMap to get is not
// there stays what client-go makes of it.
func (c *configMap) do(ctx context.Context, verb string, r *rest.Request) (*configMapObject, error) {
	// Who calls retries, with what is to be saved then.
	result := r.MaxRetries(0).SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json").Do(ctx)
	if err := result.Error(); err != nil {
		return nil, c.explain(verb, err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, c.explain(verb, err)
	}
	o := new(configMapObject)
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("%s: %s: the answer is no ConfigMap: %w", c, verb, err)
	}
	return o, nil
}

func (c *configMap) explain(verb string, err error) error {
	refused := func(what, remedy string) error {
		return &Error{Kind: ErrRefused, Where: c.String(), What: what, Err: err, Remedy: remedy}
	}
	switch {
	case apierrors.IsNotFound(err) && verb == "create":
		return refused(fmt.Sprintf("namespace %s is not there", c.namespace),
			fmt.Sprintf("create it ('kubectl create namespace %s'), or name another checkpoint in the configuration", c.namespace))
	case apierrors.IsNotFound(err) && verb == "get":
		return err
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &Error{Kind: ErrConflict, Where: c.String(), What: "somebody else has written or removed it", Err: err, Remedy: oneAgent}
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return refused(fmt.Sprintf("namespace %s is being deleted", c.namespace), "name another checkpoint in the configuration")
	case apierrors.IsForbidden(err):
		return refused(fmt.Sprintf("not permitted to %s configmaps in namespace %s", verb, c.namespace),
			"'kubecdc rbac', with the same --config, prints the role that is needed")
	case apierrors.IsUnauthorized(err):
		return refused("the API server does not accept the credentials", "renew those of the kubeconfig or service account")
	case apierrors.IsRequestEntityTooLargeError(err):
		return &Error{Kind: ErrTooLarge, Where: c.String(), What: "the API server does not take that much", Err: err, Remedy: "keep the checkpoint in a file"}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refused("the API server does not take it", "see to the object (if it is immutable, delete it), or name another checkpoint in the configuration")
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
