package world

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Load updates ConfigMaps and Events of a given size many times.
type Load struct {
	API       *API
	Namespace string
	Objects   int // The number of objects of each kind.
	Size      int // The size of an object's payload, in bytes.
	// Random makes each payload new and incompressible. Otherwise, the payload consists of words
	// and is the same in each version of an object.
	Random bool

	payloads []string
}

// words have about the redundancy of the specs in a cluster.
var words = strings.Fields(`name image value env resources limits memory requests cpu ports containerPort protocol TCP
	volumeMounts mountPath readOnly terminationMessagePolicy File livenessProbe httpGet path healthz scheme HTTP
	timeoutSeconds periodSeconds successThreshold failureThreshold securityContext allowPrivilegeEscalation capabilities
	drop ALL seccompProfile type RuntimeDefault dnsPolicy ClusterFirst serviceAccountName tolerations operator Exists
	effect NoExecute node.kubernetes.io/not-ready tolerationSeconds 300 restartPolicy Always schedulerName`)

func (l *Load) payload(object int) string {
	if l.Random {
		var b strings.Builder
		for b.Len() < l.Size {
			b.WriteString(rand.Text())
		}
		return b.String()
	}
	if l.payloads == nil {
		for i := range l.Objects {
			rng := mathrand.New(mathrand.NewPCG(uint64(i), 5))
			var b strings.Builder
			for b.Len() < l.Size {
				if rng.IntN(6) == 0 {
					fmt.Fprintf(&b, "%x ", rng.Uint64())
				} else {
					b.WriteString(words[rng.IntN(len(words))] + " ")
				}
			}
			l.payloads = append(l.payloads, b.String())
		}
	}
	return l.payloads[object]
}

func (l *Load) configMap(i, step int) (uri string, body []byte) {
	name := fmt.Sprint("load-", i)
	return Collection("configmaps", l.Namespace) + "/" + name, fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"payload":%q,"step":"%d","trace":%q}}`,
		name, l.payload(i), step, rand.Text())
}

func (l *Load) event(i, step int) (uri string, body []byte) {
	name := fmt.Sprint("load-", i)
	return Collection("events", l.Namespace) + "/" + name, fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":%q,"annotations":{"payload":%q}},"reason":"Load","type":"Normal",`+
			`"message":"step %d, %s","count":%d,"involvedObject":{"apiVersion":"v1","kind":"ConfigMap","namespace":%q,"name":%q},`+
			`"firstTimestamp":"2026-11-20T15:00:00Z","lastTimestamp":"2026-11-20T15:00:00Z","source":{"component":"e2e"}}`,
		name, l.payload(i), step, rand.Text(), step, l.Namespace, name)
}

// Create creates the objects.
func (l *Load) Create(t testing.TB) {
	t.Helper()
	for i := range l.Objects {
		uri, body := l.configMap(i, 0)
		if _, err := l.API.Do(t.Context(), http.MethodPost, uri[:strings.LastIndex(uri, "/")], MIMEJSON,
			body); err != nil {
			t.Fatal(err)
		}
		uri, body = l.event(i, 0)
		if _, err := l.API.Do(t.Context(), http.MethodPost, uri[:strings.LastIndex(uri, "/")], MIMEJSON,
			body); err != nil {
			t.Fatal(err)
		}
	}
}

// Run makes n updates, 40% of them to Events. The API server would buffer an unread watch of Events
// without a limit, which that many updates make visible.
func (l *Load) Run(t testing.TB, n int) {
	t.Helper()
	l.payload(0) // Makes the payloads before several writers use them.
	var steps atomic.Int64
	ws := &Writers{API: l.API, Done: func() bool { return steps.Load() >= int64(n) }}
	step := func(ctx context.Context) error {
		k := int(steps.Add(1))
		// Successive steps update different objects, so that writers rarely conflict.
		uri, body := l.configMap(k*7%l.Objects, k)
		if k%5 < 2 {
			uri, body = l.event(k*7%l.Objects, k)
		}
		_, err := l.API.Do(ctx, http.MethodPut, uri, MIMEJSON, body)
		return err
	}
	ws.Run(t, step, step, step, step, step, step, step, step)
}
