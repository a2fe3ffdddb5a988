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

// Load is many updates of objects of a given size, ConfigMaps and Events.
type Load struct {
	API       *API
	Namespace string
	Objects   int // Of each kind.
	Size      int // Of an object's payload, in bytes.
	// Random makes every payload new and incompressible. Else it is as in most objects: words, the same ones from version
	// to version but for a few.
	Random bool

	payloads []string
}

// words are about as repetitive as the specs in a cluster.
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

// Create makes the objects.
func (l *Load) Create(t testing.TB) {
	t.Helper()
	for i := range l.Objects {
		uri, body := l.configMap(i, 0)
		if _, err := l.API.Do(t.Context(), http.MethodPost, uri[:strings.LastIndex(uri, "/")], MIMEJSON, body); err != nil {
			t.Fatal(err)
		}
		uri, body = l.event(i, 0)
		if _, err := l.API.Do(t.Context(), http.MethodPost, uri[:strings.LastIndex(uri, "/")], MIMEJSON, body); err != nil {
			t.Fatal(err)
		}
	}
}

// Run makes n updates, two in five of them of Events: an unread watch of these, which the API server would buffer without
// a bound, is then too much to go unnoticed.
func (l *Load) Run(t testing.TB, n int) {
	t.Helper()
	l.payload(0) // Before there are several writers.
	var steps atomic.Int64
	ws := &Writers{API: l.API, Done: func() bool { return steps.Load() >= int64(n) }}
	step := func(ctx context.Context) error {
		k := int(steps.Add(1))
		// Neighbours in time are different objects, so that writers seldom meet.
		uri, body := l.configMap(k*7%l.Objects, k)
		if k%5 < 2 {
			uri, body = l.event(k*7%l.Objects, k)
		}
		_, err := l.API.Do(ctx, http.MethodPut, uri, MIMEJSON, body)
		return err
	}
	ws.Run(t, step, step, step, step, step, step, step, step)
}
