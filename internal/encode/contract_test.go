package encode_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// TestGoldenContract demands a golden event of each op, kind of stream event and reason of a gap.
func TestGoldenContract(t *testing.T) {
	ops := make(map[object.Op]bool)
	kinds := make(map[object.StreamKind]bool)
	reasons := make(map[object.GapReason]bool)
	for _, d := range deltas() {
		ops[d.Op] = true
		if d.Stream != nil {
			kinds[d.Stream.Kind], reasons[d.Stream.Reason] = true, true
		}
	}
	for _, op := range object.Ops() {
		if !ops[op] {
			t.Errorf("no golden event has the op %s", op)
		}
	}
	for _, kind := range object.StreamKinds() {
		if !kinds[kind] {
			t.Errorf("no golden event is a %s", kind)
		}
	}
	for _, reason := range object.GapReasons() {
		if !reasons[reason] {
			t.Errorf("no golden gap has the reason %s", reason)
		}
	}
}

// Gaps with the same ends have two ids if one is recovered and the other is not, or if nothing was
// lost in one of them.
func TestGapIDs(t *testing.T) {
	id := func(reason object.GapReason, recovered bool) string {
		d := deltas()["gap"]
		d.Stream.Reason, d.Stream.Recovered = reason, recovered
		var ev encode.Event
		err := encode.New(full).Encode(&ev, d)
		if err != nil {
			t.Fatal(err)
		}
		return string(ev.ID)
	}
	for _, reason := range object.GapReasons() {
		if id(reason, true) == id(reason, false) {
			t.Errorf("gaps of reason %s have one id, recovered or not", reason)
		}
		for _, recovered := range []bool{true, false} {
			nothingLost := reason == object.ContentChanged
			for _, other := range []bool{true, false} {
				isSame := id(reason, recovered) == id(object.ContentChanged, other)
				if isSame != (nothingLost && recovered == other) {
					t.Errorf("gaps %s and content-changed, recovered %t and %t: %s, %s", reason, recovered, other,
						id(reason, recovered), id(object.ContentChanged, other))
				}
			}
		}
	}
}
