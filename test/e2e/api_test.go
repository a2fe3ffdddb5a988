package e2e_test

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
)

const (
	widgetsGroup = "e2e.kubecdc.dev"
	widgets      = "widgets." + widgetsGroup
)

// api writes to the API server in raw JSON: it costs the test next to nothing, which leaves the machine to those who
// are to be tested.
type api struct{ client *rest.RESTClient }

func newAPI(cfg *rest.Config) (*api, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.APIPath = "/"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &api{client}, nil
}

// do sends a request; uri is path and query. Refusals are errors of apierrors.
func (a *api) do(ctx context.Context, verb, uri, contentType string, body []byte) ([]byte, error) {
	req := a.client.Verb(verb).RequestURI(uri).SetHeader("Accept", "application/json")
	if body != nil {
		req = req.SetHeader("Content-Type", contentType).Body(body)
	}
	raw, err := req.Do(ctx).Raw()
	if err != nil {
		// The client does not decode a refusal's Status here: its message is in the body.
		err = fmt.Errorf("%s %s: %w: %.600s", verb, uri, err, raw)
	}
	return raw, err
}

const mimeJSON = "application/json"

func (a *api) get(ctx context.Context, uri string) ([]byte, error) {
	return a.do(ctx, http.MethodGet, uri, "", nil)
}

func (a *api) create(ctx context.Context, collection string, obj any) ([]byte, error) {
	return a.send(ctx, http.MethodPost, collection, mimeJSON, obj)
}

func (a *api) replace(ctx context.Context, uri string, obj any) ([]byte, error) {
	return a.send(ctx, http.MethodPut, uri, mimeJSON, obj)
}

func (a *api) mergePatch(ctx context.Context, uri string, patch any) ([]byte, error) {
	return a.send(ctx, http.MethodPatch, uri, string(types.MergePatchType), patch)
}

// apply is server-side apply.
func (a *api) apply(ctx context.Context, uri, manager string, obj any) ([]byte, error) {
	return a.send(ctx, http.MethodPatch, uri+"?force=true&fieldManager="+manager, string(types.ApplyYAMLPatchType), obj)
}

func (a *api) remove(ctx context.Context, uri string) error {
	_, err := a.do(ctx, http.MethodDelete, uri, "", nil)
	return err
}

func (a *api) send(ctx context.Context, verb, uri, contentType string, obj any) ([]byte, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return a.do(ctx, verb, uri, contentType, body)
}

// tolerable tells whether an error is what writers who get in each other's way have to expect.
func tolerable(err error) bool {
	return err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsTooManyRequests(err)
}

// obj is short for the JSON of objects.
type obj = map[string]any

// collection is the path of a resource in a namespace.
func collection(resource, namespace string) string {
	plural, group := objectKey{Resource: resource}.split()
	root := "/api/v1"
	if group != "" {
		root = "/apis/" + group + "/v1"
	}
	if namespace == "" {
		return root + "/" + plural
	}
	return root + "/namespaces/" + namespace + "/" + plural
}

// newNamespace makes a namespace and waits until Pods can be made in it.
func (p *plane) newNamespace(t testing.TB, name string) {
	t.Helper()
	ns := obj{"apiVersion": "v1", "kind": "Namespace", "metadata": obj{"name": name}}
	if _, err := p.api.create(t.Context(), "/api/v1/namespaces", ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("namespace %s: %v", name, err)
	}
	if p.ControllerManagerPID() == 0 {
		return
	}
	eventually(t, time.Minute, func() error {
		_, err := p.api.get(t.Context(), collection("serviceaccounts", name)+"/default")
		return err
	})
}

// newWidgets defines the resource widgets: a schema, a status, and room for anything.
func (p *plane) newWidgets(ctx context.Context) error {
	crd := obj{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   obj{"name": widgets},
		"spec": obj{
			"group": widgetsGroup, "scope": "Namespaced",
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
	if _, err := p.api.create(ctx, crds, crd); err != nil {
		return fmt.Errorf("define widgets: %w", err)
	}
	return await(ctx, time.Minute, func() error {
		if _, err := p.api.get(ctx, collection(widgets, "default")); err != nil {
			return err
		}
		// The agent goes by discovery, which may lag behind.
		raw, err := p.api.get(ctx, "/apis/"+widgetsGroup+"/v1")
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
