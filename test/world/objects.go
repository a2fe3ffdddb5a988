package world

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// MakeConfigMaps creates n ConfigMaps, with names from prefix-0.
func (p *Plane) MakeConfigMaps(t testing.TB, namespace, prefix string, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprint(prefix, "-", i)
		cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": Meta(name), "data": obj{"text": name}}
		if _, err := p.API.Create(t.Context(), Collection("configmaps", namespace), cm); err != nil {
			t.Fatal(err)
		}
	}
}

// ChangeConfigMaps updates each of n ConfigMaps, deletes every third, and creates every sixth
// again.
func (p *Plane) ChangeConfigMaps(t testing.TB, namespace, prefix string, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprint(prefix, "-", i)
		uri := Collection("configmaps", namespace) + "/" + name
		if _, err := p.API.MergePatch(t.Context(), uri, obj{"data": obj{
			"text": "changed",
			"more": "yes",
		}}); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := p.API.Remove(t.Context(), uri); err != nil {
				t.Fatal(err)
			}
		}
		if i%6 == 0 {
			cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": Meta(name), "data": obj{"text": "again"}}
			if _, err := p.API.Create(t.Context(), Collection("configmaps", namespace), cm); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// MakeMany creates n ConfigMaps with several concurrent writers.
func (p *Plane) MakeMany(t testing.TB, namespace, prefix string, n int) {
	t.Helper()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(n) || failed.Load() != nil {
					return
				}
				name := fmt.Sprint(prefix, "-", i)
				body := fmt.Appendf(nil,
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"text":%q}}`, name, name)
				if _, err := p.API.Do(t.Context(), http.MethodPost, Collection("configmaps", namespace), MIMEJSON,
					body); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// NewConfigMap creates a ConfigMap.
func (p *Plane) NewConfigMap(t testing.TB, namespace, name string) {
	t.Helper()
	_, err := p.API.Create(t.Context(), Collection("configmaps", namespace), obj{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": obj{"name": name}, "data": obj{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
}
