package encode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestEncodeGolden(t *testing.T) {
	var ev encode.Event // reused: no part of an event may appear in the next one
	ds := deltas()
	for _, name := range slices.Sorted(maps.Keys(ds)) {
		d := ds[name]
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(name+"-"+string(mode), func(t *testing.T) {
				o := full
				o.Mode = mode
				if err := encode.New(o).Encode(&ev, d); err != nil {
					t.Fatal(err)
				}
				goldenEvent(t, name, mode, &ev)
				writer, run := "", ""
				if d.Report != nil {
					writer = o.Writer
				}
				if s := d.Stream; s != nil && (s.Kind == object.ScopeStarted || s.Kind == object.SnapshotStarted) {
					writer, run = o.Writer, o.Run
				}
				if string(ev.Writer) != writer || string(ev.Run) != run {
					t.Errorf("the writer is %q, and the run %q, want %q and %q", ev.Writer, ev.Run, writer, run)
				}
			})
		}
	}
}

func goldenEvent(t *testing.T, name string, mode encode.Mode, ev *encode.Event) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "content type: %s\nkey: %s\n", ev.ContentType, ev.PartitionKey)
	for _, a := range ev.Attributes {
		fmt.Fprintf(&b, "%s: %s\n", a.Name, a.Value)
	}
	b.WriteByte('\n')
	if err := json.Indent(&b, ev.Body, "", " "); err != nil {
		t.Fatalf("%v in %s", err, ev.Body)
	}
	b.WriteByte('\n')
	golden(t, fmt.Sprintf("%s.%s.txt", name, mode), b.Bytes())
	checkBySDK(t, ev)
}

// The attributes and the compact form match the example in the contract, byte for byte.
func TestEncodeContractExample(t *testing.T) {
	var ev encode.Event
	if err := encode.New(full).Encode(&ev, deltas()["updated"]); err != nil {
		t.Fatal(err)
	}
	uid := `7c0e8a42-51f0-4f7e-9d6f-6d0b6b3f2a01`
	state := func(rv, replicas string) string {
		return `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"` + uid +
			`","resourceVersion":"` + rv + `"},"spec":{"replicas":` + replicas + `}}`
	}
	want := `{"specversion":"1.0",` +
		`"id":"deployments.apps/` + uid + `/48211",` +
		`"source":"/kubernetes/prod-eu-1",` +
		`"type":"dev.kubecdc.object.updated",` +
		`"subject":"/apis/apps/v1/namespaces/shop/deployments/web",` +
		`"time":"2026-11-20T15:00:00.123456789Z",` +
		`"datacontenttype":"application/json",` +
		`"dataschema":"https://kubecdc.dev/schema/object/v1",` +
		`"cluster":"prod-eu-1","clusteruid":"11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77","apiversion":"apps/v1","kind":"Deployment","resource":"deployments",` +
		`"namespace":"shop","name":"web","uid":"` + uid + `",` +
		`"op":"u","resourceversion":"48211","sequence":"00000000000000048211",` +
		`"partitionkey":"prod-eu-1/apps/deployments/shop/web",` +
		`"data":{"op":"u","resourceVersion":"48211","previousResourceVersion":"48007",` +
		`"before":` + state("48007", "3") + `,"after":` + state("48211", "5") + `,` +
		`"patch":[{"op":"replace","path":"/metadata/resourceVersion","value":"48211"},{"op":"replace","path":"/spec/replicas","value":5}],` +
		`"changedBy":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}]}}`
	if diff := cmp.Diff(want, string(ev.Body)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if ev.Attributes != nil {
		t.Error("attributes in structured mode")
	}
}

// Null means that there is no value. Absence means that the value is unknown or was not requested.
func TestEncodeMembers(t *testing.T) {
	for _, tc := range []struct {
		delta         string
		before, patch bool
		want          string
	}{
		{"created", true, true, "before:null after:object"},
		{"created", false, false, "before:null after:object"},
		{"updated", true, true, "before:object after:object patch:array"},
		{"updated", false, true, "after:object patch:array"},
		{"updated", true, false, "before:object after:object"},
		{"updated", false, false, "after:object"},
		{"deleted", true, true, "before:object after:null"},
		{"deleted", false, true, "after:null"},
		{"read", true, true, "after:object"},
		{"entered", true, true, "after:object"},
		{"entered-before-known", true, true, "before:object after:object patch:array"},
		{"entered-before-known", false, true, "after:object patch:array"},
		{"left", true, true, "before:object"},
		{"left", false, false, ""},
	} {
		t.Run(fmt.Sprintf("%s,before=%t,patch=%t", tc.delta, tc.before, tc.patch), func(t *testing.T) {
			o := full
			o.Before = tc.before
			o.Patch = tc.patch
			o.Mode = encode.Binary
			var ev encode.Event
			if err := encode.New(o).Encode(&ev, deltas()[tc.delta]); err != nil {
				t.Fatal(err)
			}
			data := decode(t, ev.Body).(map[string]any)
			var got []string
			for _, name := range []string{"before", "after", "patch"} {
				v, ok := data[name]
				switch v.(type) {
				case map[string]any:
					got = append(got, name+":object")
				case []any:
					got = append(got, name+":array")
				case nil:
					if ok {
						got = append(got, name+":null")
					}
				}
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEncodeIDs(t *testing.T) {
	const uid = "/7c0e8a42-51f0-4f7e-9d6f-6d0b6b3f2a01/"
	for name, want := range map[string]string{
		"created":              "deployments.apps" + uid + "48007",
		"created-inferred":     "pods" + uid + "300",
		"updated":              "deployments.apps" + uid + "48211",
		"deleted":              "deployments.apps" + uid + "d",
		"deleted-inferred":     "pods" + uid + "d",
		"read":                 "deployments.apps" + uid + "48007/r/20261120T150000.000Z-48007",
		"entered":              "pods" + uid + "310",
		"left":                 "pods" + uid + "320/l",
		"left-inferred":        "pods" + uid + "320/l",
		"snapshot-started":     "deployments.apps/20261120T150000.000Z-48007/started",
		"snapshot-completed":   "pods/shop?labelSelector=team=payments/20261120T150000.000Z-48007/completed",
		"gap":                  "deployments.apps/gap/48300-52017/recovered",
		"gap-compacted":        "deployments.apps/gap/48300-52017",
		"gap-rewound":          "deployments.apps/gap/48300-31000/h1",
		"gap-dead-letter":      "deployments.apps/gap/48007-48211/deployments.apps" + uid + "48211",
		"gap-content-changed":  "deployments.apps/gap/48300-48300/content-changed",
		"gap-content-reformed": "deployments.apps/gap/48300-48307/content-changed/1795186800123456789",
		"scope-started":        "pods/started/1795186800123456789",
		"scope-ended":          "pods/ended/1795186800123456789",

		"created-history":            "deployments.apps" + uid + "48007/h2",
		"updated-history":            "deployments.apps" + uid + "48211/h2",
		"deleted-history":            "deployments.apps" + uid + "d/h2",
		"read-history":               "deployments.apps" + uid + "48007/r/20261120T150000.000Z-48007/h2",
		"entered-history":            "pods" + uid + "310/h2",
		"left-history":               "pods" + uid + "320/l/h2",
		"snapshot-started-history":   "deployments.apps/20261120T150000.000Z-48007/started/h2",
		"snapshot-completed-history": "pods/shop?labelSelector=team=payments/20261120T150000.000Z-48007/completed/h2",
		"scope-started-history":      "pods/started/1795186800123456789/h2",
		"scope-ended-history":        "pods/ended/1795186800123456789/h2",
	} {
		var ev encode.Event
		if err := encode.New(full).Encode(&ev, deltas()[name]); err != nil {
			t.Fatal(err)
		}
		if string(ev.ID) != want {
			t.Errorf("%s: id %s, want %s", name, ev.ID, want)
		}
		if string(ev.Source) != "/kubernetes/prod-eu-1" {
			t.Errorf("%s: source %s", name, ev.Source)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for name, breakIt := range map[string]func(d *object.Delta){
		"unknown op":         func(d *object.Delta) { d.Op = "x" },
		"no resource":        func(d *object.Delta) { d.Ref = nil },
		"no uid":             func(d *object.Delta) { d.Ref.UID = "" },
		"no resourceVersion": func(d *object.Delta) { d.ResourceVersion = 0 },
		"no object before":   func(d *object.Delta) { d.Before = nil },
		"no object after":    func(d *object.Delta) { d.After = nil },
		"no snapshot id":     func(d *object.Delta) { d.Op = object.Read },
		"malformed JSON":     func(d *object.Delta) { d.After = object.New(d.Ref, 1, 0, nil, []byte(`{"x" }`)) },
		"unknown kind": func(d *object.Delta) {
			d.Stream = &object.StreamEvent{Kind: "x", Resource: pods, Scope: "pods"}
		},
		"no scope": func(d *object.Delta) {
			d.Stream = &object.StreamEvent{Kind: object.Gap, Resource: pods}
		},
		"no snapshot id ": func(d *object.Delta) {
			d.Stream = &object.StreamEvent{Kind: object.SnapshotStarted, Resource: pods, Scope: "pods"}
		},
		"no reason": func(d *object.Delta) {
			d.Stream = &object.StreamEvent{Kind: object.ScopeEnded, Resource: pods, Scope: "pods"}
		},
		"no resourceVersion ": func(d *object.Delta) {
			d.Stream = &object.StreamEvent{Kind: object.ScopeStarted, Resource: pods, Scope: "pods"}
		},
	} {
		d := deltas()["updated"]
		breakIt(d)
		var ev encode.Event
		if err := encode.New(full).Encode(&ev, d); err == nil ||
			!strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var ev encode.Event
	if err := encode.New(encode.Options{}).Encode(&ev, deltas()["updated"]); err == nil {
		t.Error("no error without a cluster")
	}
}

func TestEncodeClusterUIDForName(t *testing.T) {
	o := full
	o.Cluster = ""
	var ev encode.Event
	if err := encode.New(o).Encode(&ev, deltas()["created"]); err != nil {
		t.Fatal(err)
	}
	if got, want := string(ev.Source), "/kubernetes/"+o.ClusterUID; got != want {
		t.Errorf("source %s, want %s", got, want)
	}
	if got, want := string(ev.PartitionKey), o.ClusterUID+"/apps/deployments/shop/web"; got != want {
		t.Errorf("key %s, want %s", got, want)
	}
}

// The encoder omits members that an op does not have, even if the delta has them.
func TestEncodeIgnoresWhatTheOpHasNot(t *testing.T) {
	for _, op := range []object.Op{object.Created, object.Deleted, object.Read, object.Left} {
		d := deltas()["updated"]
		d.Op, d.Snapshot = op, "s1"
		var ev encode.Event
		if err := encode.New(full).Encode(&ev, d); err != nil {
			t.Fatal(err)
		}
		data := decode(t, ev.Body).(map[string]any)["data"].(map[string]any)
		_, before := data["before"].(map[string]any)
		_, after := data["after"].(map[string]any)
		if _, patch := data["patch"]; before == after || patch {
			t.Errorf("%s: %s", op, ev.Body)
		}
	}
}

// Many workers share one Encoder. Each reuses its own Event.
func TestEncodeConcurrently(t *testing.T) {
	e := encode.New(full)
	want := make(map[string][]byte)
	for name, d := range deltas() {
		var ev encode.Event
		if err := e.Encode(&ev, d); err != nil {
			t.Fatal(err)
		}
		want[name] = ev.Body
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var ev encode.Event
			for range 50 {
				for name, d := range deltas() {
					if err := e.Encode(&ev, d); err != nil || !bytes.Equal(ev.Body, want[name]) {
						t.Errorf("%s: %v, %s", name, err, ev.Body)
					}
				}
			}
		})
	}
	wg.Wait()
}

// A worker does not keep the large buffers that it needed for a huge object.
func TestEventReset(t *testing.T) {
	ref := refOf(pods, "shop", "huge")
	spec := func(c string) string { return `{"x":"` + strings.Repeat(c, 1<<20) + `"}` }
	d := &object.Delta{
		Op:              object.Updated,
		Ref:             ref,
		Before:          version(ref, 1, spec("x")),
		After:           version(ref, 2, spec("y")),
		ResourceVersion: 2,
		Previous:        1,
	}
	var ev encode.Event
	if err := encode.New(full).Encode(&ev, d); err != nil {
		t.Fatal(err)
	}
	ev.Reset()
	if cap(ev.Body) != 0 || ev.Delta != nil || ev.ID != nil {
		t.Errorf("after Reset a body of %d bytes, delta %v", cap(ev.Body), ev.Delta)
	}
	if err := encode.New(full).Encode(&ev, deltas()["updated"]); err != nil {
		t.Fatal(err)
	}
	body := &ev.Body[0]
	if err := encode.New(full).Encode(&ev, deltas()["updated"]); err != nil || &ev.Body[0] != body {
		t.Errorf("the body's buffer is not used again: %v", err)
	}
}

// If there is a leader, every event has the leader's epoch. Otherwise no event has one.
func TestEncodeEpoch(t *testing.T) {
	for name, d := range deltas() {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			for epoch, want := range map[uint64]string{0: "", 7: "7", 1<<64 - 1: "18446744073709551615"} {
				o := full
				o.Mode, o.Epoch = mode, epoch
				var ev encode.Event
				if err := encode.New(o).Encode(&ev, d); err != nil {
					t.Fatal(err)
				}
				if got := epochOf(t, &ev); got != want {
					t.Errorf("%s, %s: epoch %q, want %q", name, mode, got, want)
				}
			}
		}
	}
}

// epochOf returns the epoch of an event in either mode.
func epochOf(t *testing.T, ev *encode.Event) string {
	t.Helper()
	for _, a := range ev.Attributes {
		if a.Name == "epoch" {
			return string(a.Value)
		}
	}
	if len(ev.Attributes) > 0 {
		return ""
	}
	var read event.Event // as the SDK decodes it
	if err := json.Unmarshal(ev.Body, &read); err != nil {
		t.Fatal(err)
	}
	epoch, _ := read.Extensions()["epoch"].(string)
	return epoch
}
