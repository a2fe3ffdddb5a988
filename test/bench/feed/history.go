package feed

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// beginning is the resourceVersion of the first list, where the readable history starts. With it
// every resourceVersion of a run has nine digits.
const beginning = 200_000_000

// MaxPods is the number of pods for which there are resourceVersions below the beginning, and
// addresses.
const MaxPods = 1_000_000

// History is the state of the API server: the pods at the beginning, and the updates so far.
type History struct {
	pods      int
	stride    int // update j changes pod j*stride mod pods
	inverse   int // of stride
	templates [workloads][2]*template

	mu       sync.Mutex
	total    int           // planned updates
	sent     []int64       // when each released update was released, in nanoseconds since 1970
	released chan struct{} // closed, and replaced, when there are more
}

// NewHistory makes the history of n pods, without any updates yet.
func NewHistory(n int) (*History, error) { return newHistory(n, 0) }

func newHistory(n, padding int) (*History, error) {
	if n < 1 || n > MaxPods {
		return nil, fmt.Errorf("pods: must be between 1 and %d, got %d", MaxPods, n)
	}
	h := &History{pods: n, released: make(chan struct{})}
	for w := range workloads {
		for variant, ready := range []bool{true, false} {
			t, err := newTemplate(w, ready, padding)
			if err != nil {
				return nil, err
			}
			h.templates[w][variant] = t
		}
	}
	// The golden section spreads adjacent updates on the watch over the workloads. The next coprime
	// number makes it a permutation, so that every pod is updated equally often.
	h.stride = max(1, int(float64(n)*0.618))
	for {
		if inverse, ok := invert(h.stride, n); ok {
			h.inverse = inverse
			return h, nil
		}
		h.stride++
	}
}

// invert finds x with a·x ≡ 1 mod n, by the extended Euclidean algorithm.
func invert(a, n int) (int, bool) {
	if n == 1 {
		return 0, true
	}
	r0 := n
	r1 := a % n
	x0 := 0
	x1 := 1
	for r1 != 0 {
		q := r0 / r1
		r0, r1 = r1, r0-q*r1
		x0, x1 = x1, x0-q*x1
	}
	return (x0%n + n) % n, r0 == 1
}

// Pods is the number of pods.
func (h *History) Pods() int { return h.pods }

// Order returns the pod that update j changes.
func (h *History) Order(j int) int {
	return int(uint64(j%h.pods) * uint64(h.stride) % uint64(h.pods))
}

// Version returns the resourceVersion that update j writes.
func (h *History) Version(j int) uint64 { return beginning + 1 + uint64(j) }

// Update returns the number of the update that wrote version. ok is false if version is from before
// all updates.
func (h *History) Update(version uint64) (j int, ok bool) {
	return int(version - beginning - 1), version > beginning
}

// Initial returns the resourceVersion of a pod that has not been updated yet.
func (h *History) Initial(pod int) uint64 { return beginning - uint64(h.pods) + uint64(pod) }

// Previous returns the resourceVersion of the pod before update j.
func (h *History) Previous(j int) uint64 {
	if j < h.pods {
		return h.Initial(h.Order(j))
	}
	return h.Version(j - h.pods)
}

// At returns the resourceVersion of a pod as of resourceVersion asOf, which is not from before the
// beginning.
func (h *History) At(pod int, asOf uint64) uint64 {
	position := int(uint64(pod) * uint64(h.inverse) % uint64(h.pods))
	updates := int(asOf - beginning)
	if updates <= position {
		return h.Initial(pod)
	}
	return h.Version(position + (updates-1-position)/h.pods*h.pods)
}

// Namespace and Name of a pod. They ascend with the pod's number, as the keys of a list do.
func (h *History) Namespace(pod int) string { return namespaces[h.workload(pod)] }

// Name of a pod.
func (h *History) Name(pod int) string {
	w := h.workload(pod)
	text := h.templates[w][0].text
	const prefix = `"metadata":{"name":"`
	owner := text[len(prefix):h.templates[w][0].holes[holeSuffix][0]]
	return string(owner) + string(appendSuffix(nil, pod))
}

// UID of a pod.
func (h *History) UID(pod int) string {
	high, low := identity(pod)
	return string(appendUID(nil, high, low))
}

func (h *History) workload(pod int) int { return pod * workloads / h.pods }

// AppendObject appends the pod's JSON at version, which must be one of its own, as a watch shows
// it.
func (h *History) AppendObject(b []byte, pod int, version uint64) []byte {
	return h.appendMembers(append(b, "{"+typeMeta...), pod, version)
}

// appendItem appends it as a list does: the API server leaves out kind and apiVersion there.
func (h *History) appendItem(b []byte, pod int, version uint64) []byte {
	return h.appendMembers(append(b, '{'), pod, version)
}

func (h *History) appendMembers(b []byte, pod int, version uint64) []byte {
	v := values{pod: pod, version: version, changed: started}
	variant := 0
	if j, ok := h.Update(version); ok {
		v.changed = started.Add(time.Hour + time.Duration(j)*time.Second)
		v.sent = h.sentAt(j)
		variant = 1 - j/h.pods%2 // the first update of a pod makes it not ready, the next one ready again
	}
	return h.templates[h.workload(pod)][variant].appendTo(b, v)
}

// appendUpdate appends the watch frame of update j, with its line end.
func (h *History) appendUpdate(b []byte, j int) []byte {
	b = append(b, `{"type":"MODIFIED","object":`...)
	b = h.AppendObject(b, h.Order(j), h.Version(j))
	return append(b, "}\n"...)
}

// appendAdded appends the watch frame that a WatchList begins with.
func (h *History) appendAdded(b []byte, pod int, version uint64) []byte {
	b = append(b, `{"type":"ADDED","object":`...)
	b = h.AppendObject(b, pod, version)
	return append(b, "}\n"...)
}

func appendBookmark(b []byte, version uint64, initialEventsEnd bool) []byte {
	b = append(b, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"`...)
	b = strconv.AppendUint(b, version, 10)
	b = append(b, '"')
	if initialEventsEnd {
		b = append(b, `,"annotations":{"k8s.io/initial-events-end":"true"}`...)
	}
	return append(b, `},"spec":{"containers":null},"status":{}}}`+"\n"...)
}

func (h *History) sentAt(j int) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j < len(h.sent) {
		return h.sent[j]
	}
	return 0
}

// Released returns the number of updates so far, whether these are all, and a channel that is
// closed when there are more.
func (h *History) Released() (n int, all bool, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sent), len(h.sent) == h.total, h.released
}

// plan makes the number of planned updates at least n higher than that of the released ones.
func (h *History) plan(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total = max(h.total, len(h.sent)+n)
}

// release releases up to n more of the planned updates.
func (h *History) release(n int) {
	now := time.Now().UnixNano()
	h.mu.Lock()
	defer h.mu.Unlock()
	for range min(n, h.total-len(h.sent)) {
		h.sent = append(h.sent, now)
	}
	close(h.released)
	h.released = make(chan struct{})
}

// current returns the newest resourceVersion.
func (h *History) current() uint64 {
	n, _, _ := h.Released()
	return beginning + uint64(n)
}
