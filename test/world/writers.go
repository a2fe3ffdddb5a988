package world

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// SecretMark begins each planted Secret value, so that one search finds them all.
const SecretMark = "kubecdc-planted-"

// SecretValue returns a new value that must not leave the cluster.
func SecretValue() string { return SecretMark + rand.Text() }

// Writers change objects as fast as the API server accepts it.
type Writers struct {
	API  *API
	Done func() bool // Whether the writers must stop.

	Requests  atomic.Int64
	Tolerated atomic.Int64

	mu  sync.Mutex
	err error
}

// Writer is a writer with its own object names. Its steps are random, but the same in each run.
type Writer struct {
	*Writers
	RNG       *mathrand.Rand
	Namespace string
	id        string
	names     int
	N         int // A counter that makes contents differ.
}

// Run repeats the steps of all writers concurrently until Done returns true.
func (ws *Writers) Run(t testing.TB, all ...func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, step := range all {
		wg.Go(func() {
			for ctx.Err() == nil && !ws.Done() {
				ws.Requests.Add(1)
				err := step(ctx)
				if err == nil || ctx.Err() != nil {
					continue
				}
				if Tolerable(err) {
					ws.Tolerated.Add(1)
					continue
				}
				ws.mu.Lock()
				ws.err = err
				ws.mu.Unlock()
				cancel()
			}
		})
	}
	wg.Wait()
	if ws.err != nil {
		t.Fatalf("writer: %v", ws.err)
	}
}

// Writer returns a writer with its own object names.
func (ws *Writers) Writer(id, namespace string, names int) *Writer {
	seed := uint64(len(id))
	for _, c := range []byte(id + namespace) {
		seed = seed*131 + uint64(c)
	}
	return &Writer{
		Writers:   ws,
		RNG:       mathrand.New(mathrand.NewPCG(seed, 42)),
		id:        id,
		Namespace: namespace,
		names:     names,
	}
}

// Name returns a random name of the writer.
func (w *Writer) Name() string { return fmt.Sprintf("%s-%d", w.id, w.RNG.IntN(w.names)) }

// Text returns content that is hard to encode: quotes, escapes, characters that JSON encoders often
// escape, and non-ASCII ones.
func (w *Writer) Text() string {
	w.N++
	return fmt.Sprintf("%d \"quoted\" \\ </b>&amp; \u2028 é 漢 😀 \t\n%s", w.N, strings.Repeat("x", w.RNG.IntN(200)))
}

// Meta returns the metadata of an object.
func Meta(name string, more ...any) obj {
	m := obj{"name": name}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// Applied returns the object as kubectl apply writes it: with a copy of the object in an
// annotation.
func Applied(o obj) obj {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	o["metadata"].(obj)["annotations"] = obj{oracle.LastApplied: string(text)}
	return o
}

// finalize removes the finalizers, which completes a pending deletion.
func (w *Writer) finalize(ctx context.Context, uri string) error {
	_, err := w.API.MergePatch(ctx, uri, obj{"metadata": obj{"finalizers": nil}})
	return err
}

// ConfigMaps is one step of a writer of ConfigMaps.
func (w *Writer) ConfigMaps(ctx context.Context) error {
	all := Collection("configmaps", w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	cm := obj{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": Meta(name, "labels", obj{"step": fmt.Sprint(w.N)}),
		"data":     obj{"text": w.Text()},
	}
	var err error
	switch w.RNG.IntN(16) {
	case 0, 1:
		_, err = w.API.Create(ctx, all, cm)
	case 2:
		cm["binaryData"] = obj{"bytes": base64.StdEncoding.EncodeToString([]byte(rand.Text()))}
		_, err = w.API.Create(ctx, all, cm)
	case 3, 4, 5:
		_, err = w.API.Replace(ctx, uri, cm)
	case 6, 7:
		_, err = w.API.MergePatch(ctx, uri, obj{"data": obj{
			fmt.Sprint("k", w.RNG.IntN(5)): w.Text(),
			fmt.Sprint("k", w.RNG.IntN(5)): nil,
		}})
	case 8:
		delete(cm["metadata"].(obj), "labels")
		cm["data"] = obj{"red": w.Text()}
		_, err = w.API.Apply(ctx, uri, "red", cm)
	case 9:
		cm["data"] = obj{"blue": w.Text()}
		_, err = w.API.Apply(ctx, uri, "blue", cm)
	case 10:
		_, err = w.API.Create(ctx, all, Applied(cm))
	case 11:
		_, err = w.API.MergePatch(ctx, uri, Applied(cm))
	case 12:
		err = w.API.Remove(ctx, uri)
	case 13: // Deleted and immediately created again.
		if err = w.API.Remove(ctx, uri); err == nil {
			_, err = w.API.Create(ctx, all, cm)
		}
	case 14: // Deleted in two steps.
		cm["metadata"].(obj)["finalizers"] = []string{"e2e.kubecdc.dev/wait"}
		if _, err = w.API.Replace(ctx, uri, cm); err == nil {
			if err = w.API.Remove(ctx, uri); err == nil {
				// finalize returns the error.
				_, _ = w.API.MergePatch(ctx, uri, obj{"data": obj{"text": "while it waits"}})
				err = w.finalize(ctx, uri)
			}
		}
	case 15: // Nothing changes: no revision.
		_, err = w.API.MergePatch(ctx, uri, obj{})
	}
	return err
}

// Secrets is one step of a writer of Secrets.
func (w *Writer) Secrets(ctx context.Context) error {
	all := Collection("secrets", w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": Meta(name, "labels", obj{"step": fmt.Sprint(w.N)})}
	w.N++
	var err error
	switch w.RNG.IntN(10) {
	case 0, 1:
		secret["data"] = obj{"password": encode(SecretValue())}
		_, err = w.API.Create(ctx, all, secret)
	case 2:
		secret["stringData"] = obj{"token": SecretValue(), "json": `{"a":"` + SecretValue() + `"}`}
		_, err = w.API.Create(ctx, all, secret)
	case 3:
		secret["stringData"] = obj{"token": SecretValue()}
		_, err = w.API.Create(ctx, all, Applied(secret))
	case 4:
		secret["stringData"] = obj{"token": SecretValue()}
		secret["data"] = obj{"other": encode("x" + SecretValue())}
		_, err = w.API.MergePatch(ctx, uri, Applied(secret))
	case 5, 6:
		_, err = w.API.MergePatch(ctx, uri, obj{"data": obj{"password": encode("xy" + SecretValue()), "token": nil}})
	case 7:
		secret["data"] = obj{"ssa": encode(SecretValue())}
		_, err = w.API.Apply(ctx, uri, "red", secret)
	case 8:
		err = w.API.Remove(ctx, uri)
	case 9:
		if err = w.API.Remove(ctx, uri); err == nil {
			secret["data"] = obj{"password": encode(SecretValue())}
			_, err = w.API.Create(ctx, all, secret)
		}
	}
	return err
}

// Deployments is one step of a writer of Deployments. Each causes many more changes by the
// controller manager.
func (w *Writer) Deployments(ctx context.Context) error {
	all := Collection("deployments.apps", w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	w.N++
	image := fmt.Sprintf("example.invalid/web:%d", w.N)
	labels := obj{"app": name}
	deployment := obj{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": Meta(name),
		"spec": obj{
			"replicas": w.RNG.IntN(4), "selector": obj{"matchLabels": labels}, "revisionHistoryLimit": 2,
			"template": obj{
				"metadata": obj{"labels": labels},
				"spec":     obj{"containers": []obj{{"name": "web", "image": image}}},
			},
		},
	}
	var err error
	switch w.RNG.IntN(8) {
	case 0, 1:
		_, err = w.API.Create(ctx, all, deployment)
	case 2:
		_, err = w.API.Create(ctx, all, Applied(deployment))
	case 3, 4:
		_, err = w.API.MergePatch(ctx, uri, obj{"spec": obj{"replicas": w.RNG.IntN(4)}})
	case 5:
		_, err = w.API.MergePatch(ctx, uri, obj{"spec": obj{"template": obj{"metadata": obj{"annotations": obj{
			"image": image,
		}}}}})
	case 6:
		_, err = w.API.Apply(ctx, uri, "red", deployment)
	case 7:
		err = w.API.Remove(ctx, uri)
	}
	return err
}

// Widgets is one step of a writer of custom resources.
func (w *Writer) Widgets(ctx context.Context) error {
	all := Collection(oracle.Widgets, w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	widget := obj{
		"apiVersion": oracle.WidgetsGroup + "/v1", "kind": "Widget",
		"metadata": Meta(name, "annotations", obj{"step": fmt.Sprint(w.N)}),
		"spec": obj{
			"text": w.Text(), "list": []any{1, "two", nil, obj{"three": 3.5}}, "whole": 1 << 53, "fraction": 0.1,
			"null": nil, "empty": obj{}, "a.b/c~d": obj{"~1": []obj{}}, "": "no name",
		},
	}
	var err error
	switch w.RNG.IntN(10) {
	case 0, 1:
		_, err = w.API.Create(ctx, all, widget)
	case 2: // A replacement needs the resourceVersion, so the object is read first.
		var raw []byte
		raw, err = w.API.Get(ctx, uri)
		if err == nil {
			var current obj
			current, err = oracle.DecodeObject(raw)
			if err == nil {
				current["spec"] = widget["spec"]
				_, err = w.API.Replace(ctx, uri, current)
			}
		}
	case 3, 4:
		status := obj{"observed": w.N, "conditions": []obj{{"type": "Ready", "status": fmt.Sprint(w.RNG.IntN(2) == 0)}}}
		_, err = w.API.MergePatch(ctx, uri+"/status", obj{"status": status})
	case 5:
		_, err = w.API.MergePatch(ctx, uri, obj{"spec": obj{"list": []int{w.N}, "text": w.Text(), "whole": nil}})
	case 6:
		_, err = w.API.Apply(ctx, uri, "red", widget)
	case 7:
		err = w.API.Remove(ctx, uri)
	case 8:
		if err = w.API.Remove(ctx, uri); err == nil {
			_, err = w.API.Create(ctx, all, widget)
		}
	case 9:
		widget["metadata"].(obj)["finalizers"] = []string{"e2e.kubecdc.dev/wait"}
		if _, err = w.API.Apply(ctx, uri, "finalizer", widget); err == nil {
			if err = w.API.Remove(ctx, uri); err == nil {
				err = w.finalize(ctx, uri)
			}
		}
	}
	return err
}

// Shared is one step of a writer that shares a few objects with other writers. Each has its own
// field manager.
func (w *Writer) Shared(ctx context.Context) error {
	name := fmt.Sprint("shared-", w.RNG.IntN(3))
	uri := Collection("configmaps", w.Namespace) + "/" + name
	if w.RNG.IntN(30) == 0 {
		return w.API.Remove(ctx, uri)
	}
	_, err := w.API.Apply(ctx, uri, w.id, obj{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": Meta(name, "labels", obj{w.id: fmt.Sprint(w.N)}),
		"data": obj{w.id: w.Text()},
	})
	return err
}
