package encode_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// traceParent returns the traceparent of an event in binary mode, or "" if there is none.
func traceParent(ev *encode.Event) string {
	for _, a := range ev.Attributes {
		if a.Name == "traceparent" {
			return string(a.Value)
		}
	}
	return ""
}

func sampling(mode encode.Mode, ratio float64) *encode.Encoder {
	o := full
	o.Mode, o.SampleRatio = mode, ratio
	return encode.New(o)
}

func TestTracedEventsCarryTraceParent(t *testing.T) {
	form := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`) // W3C Trace Context, 2.2
	for name, d := range deltas() {
		var structured, binary, again, off, short encode.Event
		for _, e := range []struct {
			ev  *encode.Event
			enc *encode.Encoder
		}{
			{&structured, sampling(encode.Structured, 1)},
			{&binary, sampling(encode.Binary, 1)},
			{&again, sampling(encode.Binary, 0.999999)},
			{&off, sampling(encode.Binary, 0)},
		} {
			if err := e.enc.Encode(e.ev, d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got := traceParent(&off); got != "" || off.Trace.Sampled() ||
			strings.Contains(string(off.Body), "traceparent") {
			t.Errorf("%s: tracing is off, and traceparent is %q", name, got)
		}
		got := traceParent(&binary)
		if d.Stream != nil || d.Report != nil {
			if got != "" || structured.Trace.Sampled() {
				t.Errorf("%s: an event that is of no object has traceparent %q", name, got)
			}
			continue
		}
		if !form.MatchString(got) || got != string(binary.Trace.AppendParent(nil)) {
			t.Errorf("%s: traceparent is %q, the event's trace %x", name, got, binary.Trace)
		}
		if !strings.Contains(string(structured.Body), `"traceparent":"`+got+`"`) {
			t.Errorf("%s: %s is not in the structured event:\n%s", name, got, structured.Body)
		}
		if other := traceParent(&again); other != got {
			t.Errorf("%s: %q from an encoder, %q from another", name, got, other)
		}
		// The trace ID depends on the message's ID alone, so that a trace can be found from the
		// message.
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", binary.Source, binary.ID))
		if id := hex.EncodeToString(binary.Trace.ID[:]); id != hex.EncodeToString(sum[:16]) ||
			!strings.HasPrefix(base64.RawURLEncoding.EncodeToString(sum[:18]),
				base64.RawURLEncoding.EncodeToString(binary.Trace.ID[:15])) {
			t.Errorf("%s: the trace id %s is not the beginning of the message id", name, id)
		}
		if err := sampling(encode.Binary, 1).EncodeShort(&short, d, encode.Short{Without: []string{
			"before", "after", "patch",
		}}); err != nil {
			t.Fatal(err)
		}
		if other := traceParent(&short); other != got || !short.Trace.Sampled() {
			t.Errorf("%s: %q when it is whole, %q when it is shortened", name, got, other)
		}
	}
}

// An event that is traced at a low ratio is traced at a higher one too. The number of traced events
// fits the ratio.
func TestRatioOfTracedEvents(t *testing.T) {
	const n = 20_000
	ref := refOf(deployments, "shop", "web")
	after := version(ref, 1, `{}`)
	ratios := []float64{0.0001, 0.01, 0.1, 0.5, 1}
	var counts [5]int
	for rv := range n {
		sampled := false
		for i, ratio := range ratios {
			var ev encode.Event
			d := &object.Delta{Op: object.Created, Ref: ref, After: after, ResourceVersion: uint64(rv + 1)}
			if err := sampling(encode.Binary, ratio).Encode(&ev, d); err != nil {
				t.Fatal(err)
			}
			if sampled && !ev.Trace.Sampled() {
				t.Fatalf("rv %d is traced at a lower ratio than %v, and not there", rv+1, ratio)
			}
			sampled = ev.Trace.Sampled()
			if sampled {
				counts[i]++
			}
		}
	}
	for i, ratio := range ratios {
		// Allow six standard deviations plus one. The IDs are fixed, so the test is deterministic.
		want := ratio * n
		if diff := float64(counts[i]) - want; diff*diff > 36*want*(1-ratio)+1 {
			t.Errorf("ratio %v: %d of %d are traced", ratio, counts[i], n)
		}
	}
}

func BenchmarkEncodeTraced(b *testing.B) {
	d, _, _ := podUpdate(b)
	for _, ratio := range []float64{0, 0.01, 1} {
		e := sampling(encode.Structured, ratio)
		b.Run(fmt.Sprint(ratio), func(b *testing.B) {
			b.ReportAllocs()
			var ev encode.Event
			for b.Loop() {
				d.ResourceVersion++ // another id
				if err := e.Encode(&ev, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
