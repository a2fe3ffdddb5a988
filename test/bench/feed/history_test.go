package feed_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubecdc/kubecdc/test/bench/feed"
)

// A pod is what the API server would serve: it decodes without unknown fields, and it is as large
// as a real one.
func TestPodsAreRealAndDistinct(t *testing.T) {
	const pods = 1000
	h := history(t, pods)
	uids := map[string]bool{}
	total := 0
	last := ""
	for i := range pods {
		b := h.AppendObject(nil, i, h.Initial(i))
		total += len(b)
		var p corev1.Pod
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Fatalf("pod %d: %v\n%s", i, err, b)
		}
		again, err := json.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, again) {
			t.Fatalf("pod %d is written otherwise by its type:\n%s\n%s", i, b, again)
		}
		if p.Name != h.Name(i) || p.Namespace != h.Namespace(i) || string(p.UID) != h.UID(i) {
			t.Errorf("pod %d is %s/%s %s, not %s/%s %s", i, p.Namespace, p.Name, p.UID, h.Namespace(i), h.Name(i),
				h.UID(i))
		}
		if key := p.Namespace + "/" + p.Name; key <= last {
			t.Errorf("%s follows %s in the list", key, last)
		} else {
			last = key
		}
		if uids[string(p.UID)] {
			t.Errorf("uid %s twice", p.UID)
		}
		uids[string(p.UID)] = true
	}
	if mean := total / pods; mean < 5200 || mean > 5400 {
		t.Errorf("a pod has %d bytes, not 5.3 KB", mean)
	}
}

// Update, order, previous and state at a version are four views of one history.
func TestHistoryAgreesWithItself(t *testing.T) {
	for _, pods := range []int{1, 2, 3, 10, 1000, 1024} {
		h := history(t, pods)
		now := make([]uint64, pods)
		for i := range now {
			now[i] = h.Initial(i)
		}
		for j := range 3*pods + 1 {
			pod := h.Order(j)
			if got := h.Previous(j); got != now[pod] {
				t.Fatalf("%d pods: update %d of pod %d: previous is %d, want %d", pods, j, pod, got, now[pod])
			}
			now[pod] = h.Version(j)
			if got, ok := h.Update(h.Version(j)); !ok || got != j {
				t.Fatalf("version of update %d is that of update %d", j, got)
			}
			for _, i := range []int{pod, 0, pods - 1} {
				if got := h.At(i, h.Version(j)); got != now[i] {
					t.Fatalf("%d pods: pod %d as of update %d: %d, want %d", pods, i, j, got, now[i])
				}
			}
			b := h.AppendObject(nil, pod, now[pod])
			if !bytes.Contains(b, []byte(`"resourceVersion":"`+strconv.FormatUint(now[pod], 10)+`"`)) {
				t.Fatalf("update %d does not show its version: %.400s", j, b)
			}
		}
	}
}

func BenchmarkAppendObject(b *testing.B) {
	h, err := feed.NewHistory(1000)
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	for j := 0; b.Loop(); j++ {
		buf = h.AppendObject(buf[:0], h.Order(j), h.Version(j))
	}
}

func history(t *testing.T, pods int) *feed.History {
	t.Helper()
	h, err := feed.NewHistory(pods)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
