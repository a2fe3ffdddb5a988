package buses

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// cluster is the name of the cluster in events, subjects and topics.
const cluster = "bench"

// Workload is a number of updates of Deployments, each 2 KB large, as deltas and as events.
type Workload struct {
	deltas  []*object.Delta
	encoded []*encode.Event
	events  []Event
	objects int
}

// Event is an event as it is on the bus, for clients without deltas.
type Event struct {
	ID, Key, Namespace, Name string
	Body                     []byte // in structured mode
}

// Bytes is the size of all bodies.
func (w *Workload) Bytes() int {
	n := 0
	for i := range w.events {
		n += len(w.events[i].Body)
	}
	return n
}

// Len is the number of events.
func (w *Workload) Len() int { return len(w.events) }

func encoder() *encode.Encoder {
	return encode.New(encode.Options{
		Cluster:    cluster,
		ClusterUID: "11e0f2a4-0000-4000-8000-000000000000",
		Before:     true,
		Patch:      true,
	})
}

// NewWorkload makes n updates of a tenth as many objects, the same ones each time.
func NewWorkload(n int) (*Workload, error) {
	w := &Workload{objects: max(1, n/10)}
	rng := rand.New(rand.NewPCG(1, 2)) // the same in every run
	resource := &object.Resource{
		Group:      "apps",
		Version:    "v1",
		Name:       "deployments",
		Kind:       "Deployment",
		Namespaced: true,
	}
	begin := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	codec := object.NewCodec(deployment("web-0", "uid", 1, rng))
	refs, last := make([]*object.Ref, w.objects), make([]*object.Object, w.objects)
	enc := encoder()
	for i := range n + w.objects {
		o := i % w.objects
		rv := uint64(i + 1000)
		if refs[o] == nil {
			name := fmt.Sprintf("web-%d", o)
			refs[o] = object.NewRef(resource, fmt.Sprintf("team-%d", o%20), name,
				fmt.Sprintf("0b6f3f0e-5d7c-4a53-9a57-%012d", o))
		}
		ref := refs[o]
		next := object.New(ref, rv, 0, codec, deployment(ref.Name(), ref.UID, rv, rng))
		if before := last[o]; before != nil {
			d := &object.Delta{
				Op:              object.Updated,
				Ref:             ref,
				Before:          before,
				After:           next,
				ResourceVersion: rv,
				Previous:        before.ResourceVersion,
				Observed:        begin.Add(time.Duration(i) * time.Millisecond).UnixNano(),
				Scope:           resource.String(),
				ChangedBy: []byte(
					`[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}]`),
			}
			ev := new(encode.Event)
			if err := enc.Encode(ev, d); err != nil {
				return nil, fmt.Errorf("encode %s: %w", ref.Key, err)
			}
			w.deltas, w.encoded = append(w.deltas, d), append(w.encoded, ev)
			w.events = append(w.events, Event{
				ID:        string(ev.ID),
				Key:       string(ev.PartitionKey),
				Namespace: ref.Namespace(),
				Name:      ref.Name(),
				Body:      ev.Body,
			})
		}
		last[o] = next
	}
	return w, nil
}

// deployment is a typical one: each version has little new content, and some content does not
// compress.
func deployment(name, uid string, rv uint64, rng *rand.Rand) []byte {
	digest := make([]byte, 32)
	for i := range digest {
		digest[i] = byte(rng.Uint32())
	}
	var env strings.Builder
	for i := range 12 {
		fmt.Fprintf(&env, `{"name":"SETTING_%d","value":"https://service-%d.internal.example/%s"},`, i, i, name)
	}
	return fmt.Appendf(nil,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":"shop","uid":%q,`+
			`"resourceVersion":"%d","generation":%d,"labels":{"app":%q,"team":"payments","tier":"backend"}},`+
			`"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},"strategy":{"type":"RollingUpdate","rollingUpdate":`+
			`{"maxSurge":"25%%","maxUnavailable":"25%%"}},"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"web",`+
			`"image":"registry.example/web@sha256:%s","env":[%s{"name":"LAST","value":"x"}],"ports":[{"containerPort":8080,"protocol":"TCP"}],`+
			`"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"livenessProbe":{"httpGet":{"path":"/healthz",`+
			`"port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"failureThreshold":3},"terminationMessagePolicy":"File"}],`+
			`"dnsPolicy":"ClusterFirst","restartPolicy":"Always","terminationGracePeriodSeconds":30}}},"status":{"observedGeneration":%d,`+
			`"replicas":%d,"readyReplicas":%d}}`,
		name, uid, rv, rv, name, rv%9, name, name, hex.EncodeToString(digest), env.String(), rv, rv%9, rv%7)
}

// queue returns the deltas in their order. Like package queue, it returns the next delta of an
// object only after Done of the previous one.
type queue struct {
	idle chan int // objects without a delta in flight; room for all. Never closed.
	w    *Workload
	next []int        // index into the deltas of each object's next one; belongs to the owner of the object
	left atomic.Int64 // not returned yet

	slots   chan struct{} // room for those in flight
	undone  atomic.Int64
	drained chan struct{} // closed when all are done
}

type item struct {
	delta  *object.Delta
	event  *encode.Event // the same, ready
	object int
}

func newQueue(w *Workload) *queue {
	q := &queue{
		idle:    make(chan int, w.objects),
		w:       w,
		next:    make([]int, w.objects),
		slots:   make(chan struct{}, publish.InFlight),
		drained: make(chan struct{}),
	}
	q.left.Store(int64(len(w.deltas)))
	q.undone.Store(int64(len(w.deltas)))
	for o := range w.objects {
		q.next[o] = o
		q.idle <- o
	}
	return q
}

// Get implements publish.Queue.
func (q *queue) Get(ctx context.Context) (item, error) {
	if q.left.Add(-1) < 0 {
		select {
		case <-q.drained:
			return item{}, io.EOF
		case <-ctx.Done():
			return item{}, context.Cause(ctx)
		}
	}
	select {
	case q.slots <- struct{}{}:
	case <-ctx.Done():
		return item{}, context.Cause(ctx)
	}
	select {
	case o := <-q.idle:
		i := q.next[o]
		q.next[o] += q.w.objects
		return item{q.w.deltas[i], q.w.encoded[i], o}, nil
	case <-ctx.Done():
		return item{}, context.Cause(ctx)
	}
}

// Resize implements publish.Queue. This queue is unbounded.
func (*queue) Resize(item, int64) {}

// Suspend and Resume implement publish.Queue: the buses here accept every event.
func (*queue) Suspend(item) { panic("not taken") }

// Resume implements publish.Queue.
func (*queue) Resume(item) { panic("not taken") }

// Done implements publish.Queue.
func (q *queue) Done(items ...item) {
	for _, it := range items {
		if q.next[it.object] < len(q.w.deltas) {
			q.idle <- it.object
		}
		<-q.slots
	}
	if q.undone.Add(-int64(len(items))) == 0 {
		close(q.drained)
	}
}
