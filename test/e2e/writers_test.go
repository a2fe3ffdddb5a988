package e2e_test

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
)

// secretMark begins each planted Secret value, so that one search finds them all.
const secretMark = "kubecdc-planted-"

// secretValue is a value that must not leave the cluster.
func secretValue() string { return secretMark + rand.Text() }

// writers change objects as fast as the API server takes it.
type writers struct {
	api  *api
	done func() bool // The budget is used up.

	requests  atomic.Int64
	tolerated atomic.Int64

	mu  sync.Mutex
	err error
}

// writer is one of them. It has names of its own; what it does to them is a matter of luck, the same in each run.
type writer struct {
	*writers
	rng       *mathrand.Rand
	namespace string
	id        string
	names     int
	n         int // Counts steps, to make contents differ.
}

// run runs the steps of each writer again and again until the budget is used up.
func (ws *writers) run(t testing.TB, all ...func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, step := range all {
		wg.Go(func() {
			for ctx.Err() == nil && !ws.done() {
				ws.requests.Add(1)
				err := step(ctx)
				if err == nil || ctx.Err() != nil {
					continue
				}
				if tolerable(err) {
					ws.tolerated.Add(1)
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

func (ws *writers) writer(id, namespace string, names int) *writer {
	seed := uint64(len(id))
	for _, c := range []byte(id + namespace) {
		seed = seed*131 + uint64(c)
	}
	return &writer{
		writers: ws, rng: mathrand.New(mathrand.NewPCG(seed, 42)), id: id, namespace: namespace, names: names,
	}
}

func (w *writer) name() string { return fmt.Sprintf("%s-%d", w.id, w.rng.IntN(w.names)) }

// text is a content that is awkward to carry: quotes, escapes, what JSON writers like to escape, and beyond ASCII.
func (w *writer) text() string {
	w.n++
	return fmt.Sprintf("%d \"quoted\" \\ </b>&amp; \u2028 é 漢 😀 \t\n%s", w.n, strings.Repeat("x", w.rng.IntN(200)))
}

func meta(name string, more ...any) obj {
	m := obj{"name": name}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// applied is what kubectl apply writes: the object, and the object once more in an annotation.
func applied(o obj) obj {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	o["metadata"].(obj)["annotations"] = obj{lastApplied: string(text)}
	return o
}

// finalize takes the finalizers away, upon which an object that is being deleted goes.
func (w *writer) finalize(ctx context.Context, uri string) error {
	_, err := w.api.mergePatch(ctx, uri, obj{"metadata": obj{"finalizers": nil}})
	return err
}

// configMaps is one step of a writer of ConfigMaps.
func (w *writer) configMaps(ctx context.Context) error {
	all := collection("configmaps", w.namespace)
	name := w.name()
	uri := all + "/" + name
	cm := obj{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": meta(name, "labels", obj{"step": fmt.Sprint(w.n)}),
		"data":     obj{"text": w.text()},
	}
	var err error
	switch w.rng.IntN(16) {
	case 0, 1:
		_, err = w.api.create(ctx, all, cm)
	case 2:
		cm["binaryData"] = obj{"bytes": base64.StdEncoding.EncodeToString([]byte(rand.Text()))}
		_, err = w.api.create(ctx, all, cm)
	case 3, 4, 5:
		_, err = w.api.replace(ctx, uri, cm)
	case 6, 7:
		_, err = w.api.mergePatch(ctx, uri, obj{"data": obj{fmt.Sprint("k", w.rng.IntN(5)): w.text(), fmt.Sprint("k", w.rng.IntN(5)): nil}})
	case 8:
		delete(cm["metadata"].(obj), "labels")
		cm["data"] = obj{"red": w.text()}
		_, err = w.api.apply(ctx, uri, "red", cm)
	case 9:
		cm["data"] = obj{"blue": w.text()}
		_, err = w.api.apply(ctx, uri, "blue", cm)
	case 10:
		_, err = w.api.create(ctx, all, applied(cm))
	case 11:
		_, err = w.api.mergePatch(ctx, uri, applied(cm))
	case 12:
		err = w.api.remove(ctx, uri)
	case 13: // Gone and back again at once.
		if err = w.api.remove(ctx, uri); err == nil {
			_, err = w.api.create(ctx, all, cm)
		}
	case 14: // Deleted in two steps.
		cm["metadata"].(obj)["finalizers"] = []string{"e2e.kubecdc.dev/wait"}
		if _, err = w.api.replace(ctx, uri, cm); err == nil {
			if err = w.api.remove(ctx, uri); err == nil {
				_, _ = w.api.mergePatch(ctx, uri, obj{"data": obj{"text": "while it waits"}}) // The next line tells.
				err = w.finalize(ctx, uri)
			}
		}
	case 15: // Nothing changes: no revision.
		_, err = w.api.mergePatch(ctx, uri, obj{})
	}
	return err
}

// secrets is one step of a writer of Secrets.
func (w *writer) secrets(ctx context.Context) error {
	all := collection("secrets", w.namespace)
	name := w.name()
	uri := all + "/" + name
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": meta(name, "labels", obj{"step": fmt.Sprint(w.n)})}
	w.n++
	var err error
	switch w.rng.IntN(10) {
	case 0, 1:
		secret["data"] = obj{"password": encode(secretValue())}
		_, err = w.api.create(ctx, all, secret)
	case 2:
		secret["stringData"] = obj{"token": secretValue(), "json": `{"a":"` + secretValue() + `"}`}
		_, err = w.api.create(ctx, all, secret)
	case 3:
		secret["stringData"] = obj{"token": secretValue()}
		_, err = w.api.create(ctx, all, applied(secret))
	case 4:
		secret["stringData"] = obj{"token": secretValue()}
		secret["data"] = obj{"other": encode("x" + secretValue())}
		_, err = w.api.mergePatch(ctx, uri, applied(secret))
	case 5, 6:
		_, err = w.api.mergePatch(ctx, uri, obj{"data": obj{"password": encode("xy" + secretValue()), "token": nil}})
	case 7:
		secret["data"] = obj{"ssa": encode(secretValue())}
		_, err = w.api.apply(ctx, uri, "red", secret)
	case 8:
		err = w.api.remove(ctx, uri)
	case 9:
		if err = w.api.remove(ctx, uri); err == nil {
			secret["data"] = obj{"password": encode(secretValue())}
			_, err = w.api.create(ctx, all, secret)
		}
	}
	return err
}

// deployments is one step of a writer of Deployments, upon which the controller manager makes many more.
func (w *writer) deployments(ctx context.Context) error {
	all := collection("deployments.apps", w.namespace)
	name := w.name()
	uri := all + "/" + name
	w.n++
	image := fmt.Sprintf("example.invalid/web:%d", w.n)
	labels := obj{"app": name}
	deployment := obj{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(name),
		"spec": obj{
			"replicas": w.rng.IntN(4), "selector": obj{"matchLabels": labels}, "revisionHistoryLimit": 2,
			"template": obj{
				"metadata": obj{"labels": labels},
				"spec":     obj{"containers": []obj{{"name": "web", "image": image}}},
			},
		},
	}
	var err error
	switch w.rng.IntN(8) {
	case 0, 1:
		_, err = w.api.create(ctx, all, deployment)
	case 2:
		_, err = w.api.create(ctx, all, applied(deployment))
	case 3, 4:
		_, err = w.api.mergePatch(ctx, uri, obj{"spec": obj{"replicas": w.rng.IntN(4)}})
	case 5:
		_, err = w.api.mergePatch(ctx, uri, obj{"spec": obj{"template": obj{"metadata": obj{"annotations": obj{"image": image}}}}})
	case 6:
		_, err = w.api.apply(ctx, uri, "red", deployment)
	case 7:
		err = w.api.remove(ctx, uri)
	}
	return err
}

// widgets is one step of a writer of custom resources.
func (w *writer) widgets(ctx context.Context) error {
	all := collection(widgets, w.namespace)
	name := w.name()
	uri := all + "/" + name
	widget := obj{
		"apiVersion": widgetsGroup + "/v1", "kind": "Widget",
		"metadata": meta(name, "annotations", obj{"step": fmt.Sprint(w.n)}),
		"spec": obj{
			"text": w.text(), "list": []any{1, "two", nil, obj{"three": 3.5}}, "whole": 1 << 53, "fraction": 0.1,
			"null": nil, "empty": obj{}, "a.b/c~d": obj{"~1": []obj{}}, "": "no name",
		},
	}
	var err error
	switch w.rng.IntN(10) {
	case 0, 1:
		_, err = w.api.create(ctx, all, widget)
	case 2: // A replacement needs the resourceVersion: read, change, write.
		var raw []byte
		if raw, err = w.api.get(ctx, uri); err == nil {
			var current obj
			if current, err = decodeObject(raw); err == nil {
				current["spec"] = widget["spec"]
				_, err = w.api.replace(ctx, uri, current)
			}
		}
	case 3, 4:
		status := obj{"observed": w.n, "conditions": []obj{{"type": "Ready", "status": fmt.Sprint(w.rng.IntN(2) == 0)}}}
		_, err = w.api.mergePatch(ctx, uri+"/status", obj{"status": status})
	case 5:
		_, err = w.api.mergePatch(ctx, uri, obj{"spec": obj{"list": []int{w.n}, "text": w.text(), "whole": nil}})
	case 6:
		_, err = w.api.apply(ctx, uri, "red", widget)
	case 7:
		err = w.api.remove(ctx, uri)
	case 8:
		if err = w.api.remove(ctx, uri); err == nil {
			_, err = w.api.create(ctx, all, widget)
		}
	case 9:
		widget["metadata"].(obj)["finalizers"] = []string{"e2e.kubecdc.dev/wait"}
		if _, err = w.api.apply(ctx, uri, "finalizer", widget); err == nil {
			if err = w.api.remove(ctx, uri); err == nil {
				err = w.finalize(ctx, uri)
			}
		}
	}
	return err
}

// shared is one step of one of several writers who write to the same few objects, each as a manager of its own.
func (w *writer) shared(ctx context.Context) error {
	name := fmt.Sprint("shared-", w.rng.IntN(3))
	uri := collection("configmaps", w.namespace) + "/" + name
	if w.rng.IntN(30) == 0 {
		return w.api.remove(ctx, uri)
	}
	_, err := w.api.apply(ctx, uri, w.id, obj{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, "labels", obj{w.id: fmt.Sprint(w.n)}),
		"data": obj{w.id: w.text()},
	})
	return err
}
