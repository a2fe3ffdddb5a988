package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// API writes to the API server in raw JSON. This costs little CPU, which leaves the machine to the
// processes under test.
type API struct{ client *rest.RESTClient }

// NewAPI returns a client without a rate limit.
func NewAPI(cfg *rest.Config) (*API, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.APIPath = "/"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &API{client}, nil
}

// Do sends a request. uri is the path and the query. Rejected requests result in errors of
// apierrors.
func (a *API) Do(ctx context.Context, verb, uri, contentType string, body []byte) ([]byte, error) {
	req := a.client.Verb(verb).RequestURI(uri).SetHeader("Accept", "application/json")
	if body != nil {
		req = req.SetHeader("Content-Type", contentType).Body(body)
	}
	raw, err := req.Do(ctx).Raw()
	if err != nil {
		// The client does not decode the Status of a rejected request. Its message is in the body.
		err = fmt.Errorf("%s %s: %w: %.600s", verb, uri, err, raw)
	}
	return raw, err
}

// MIMEJSON is the content type of JSON.
const MIMEJSON = "application/json"

// Get reads an object or a list.
func (a *API) Get(ctx context.Context, uri string) ([]byte, error) {
	return a.Do(ctx, http.MethodGet, uri, "", nil)
}

// Create creates an object.
func (a *API) Create(ctx context.Context, collection string, obj any) ([]byte, error) {
	return a.send(ctx, http.MethodPost, collection, MIMEJSON, obj)
}

// Replace replaces an object.
func (a *API) Replace(ctx context.Context, uri string, obj any) ([]byte, error) {
	return a.send(ctx, http.MethodPut, uri, MIMEJSON, obj)
}

// MergePatch applies a JSON merge patch.
func (a *API) MergePatch(ctx context.Context, uri string, patch any) ([]byte, error) {
	return a.send(ctx, http.MethodPatch, uri, string(types.MergePatchType), patch)
}

// Apply does a server-side apply.
func (a *API) Apply(ctx context.Context, uri, manager string, obj any) ([]byte, error) {
	return a.send(ctx, http.MethodPatch, uri+"?force=true&fieldManager="+manager, string(types.ApplyYAMLPatchType), obj)
}

// Remove deletes an object.
func (a *API) Remove(ctx context.Context, uri string) error {
	_, err := a.Do(ctx, http.MethodDelete, uri, "", nil)
	return err
}

func (a *API) send(ctx context.Context, verb, uri, contentType string, obj any) ([]byte, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return a.Do(ctx, verb, uri, contentType, body)
}

// Tolerable reports whether concurrent writers of the same objects must expect the error.
func Tolerable(err error) bool {
	return err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsTooManyRequests(err)
}

// obj is short for the JSON of objects.
type obj = map[string]any

// Collection returns the path of a resource in a namespace.
func Collection(resource, namespace string) string {
	plural, group := oracle.ObjectKey{Resource: resource}.Split()
	root := "/api/v1"
	if group != "" {
		root = "/apis/" + group + "/v1"
	}
	if namespace == "" {
		return root + "/" + plural
	}
	return root + "/namespaces/" + namespace + "/" + plural
}

// NewNamespace creates a namespace and waits until Pods can be created in it.
func (p *Plane) NewNamespace(t testing.TB, name string) {
	t.Helper()
	ns := obj{"apiVersion": "v1", "kind": "Namespace", "metadata": obj{"name": name}}
	if _, err := p.API.Create(t.Context(), "/api/v1/namespaces", ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("namespace %s: %v", name, err)
	}
	if p.ControllerManagerPID() == 0 {
		return
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := p.API.Get(t.Context(), Collection("serviceaccounts", name)+"/default")
		return err
	})
}

// NewWidgets defines the custom resource widgets, with a status and without restrictions on its
// fields.
func (p *Plane) NewWidgets(ctx context.Context) error {
	crd := obj{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   obj{"name": oracle.Widgets},
		"spec": obj{
			"group": oracle.WidgetsGroup, "scope": "Namespaced",
			"names": obj{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []obj{{
				"name": "v1", "served": true, "storage": true,
				"subresources": obj{"status": obj{}},
				"schema": obj{"openAPIV3Schema": obj{
					"type": "object",
					"properties": obj{
						"spec":   obj{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
						"status": obj{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
					},
				}},
			}},
		},
	}
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if _, err := p.API.Create(ctx, crds, crd); err != nil {
		return fmt.Errorf("define widgets: %w", err)
	}
	return wait.For(ctx, time.Minute, func() error {
		if _, err := p.API.Get(ctx, Collection(oracle.Widgets, "default")); err != nil {
			return err
		}
		// The agent uses discovery, which may lag.
		raw, err := p.API.Get(ctx, "/apis/"+oracle.WidgetsGroup+"/v1")
		var list struct {
			Resources []struct{ Name string } `json:"resources"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		if err == nil && len(list.Resources) == 0 {
			err = errors.New("widgets are not discoverable")
		}
		return err
	})
}
