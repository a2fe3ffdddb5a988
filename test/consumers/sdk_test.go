package consumers_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	cenats "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// event is an event as an SDK reads it.
type event struct {
	Attributes map[string]string `json:"attributes"`
	Data       any               `json:"data"`
}

// deltas returns one of each kind, and some with names that need escapes.
func deltas(t testing.TB) []*object.Delta {
	t.Helper()
	role := &object.Resource{
		Group:   "rbac.authorization.k8s.io",
		Version: "v1",
		Name:    "clusterroles",
		Kind:    "ClusterRole",
	}
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	doc := func(ref *object.Ref, rv uint64, spec string) *object.Object {
		name, err := json.Marshal(ref.Name())
		if err != nil {
			t.Fatal(err)
		}
		return object.New(ref, rv, 0, nil,
			[]byte(`{"kind":"`+ref.Resource.Kind+`","apiVersion":"`+ref.Resource.APIVersion()+
				`","metadata":{"name":`+string(name)+`,"resourceVersion":"`+object.FormatVersion(rv)+`"},"spec":`+spec+
				`}`))
	}
	web := object.NewRef(pods, "shop", "web.v1-0", "7c0e8a42-51f0-4f7e-9d6f-6d0b6b3f2a01")
	a := doc(web, 99, `{"x":[1,2.5,-1e3,null,true],"text":"Zürich 😀 \u2028 \\ \" <&>"}`)
	b := doc(web, 100, `{"x":[]}`)
	since := time.Date(2026, 11, 20, 14, 58, 30, 0, time.UTC)
	by := []byte(`[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}]`)
	ds := []*object.Delta{
		{Op: object.Created, Ref: web, After: a, ResourceVersion: 99, ChangedBy: by},
		{Op: object.Updated, Ref: web, Before: a, After: b, ResourceVersion: 100, Previous: 99, ChangedBy: by},
		{Op: object.Deleted, Ref: web, Before: b, ResourceVersion: 101, Previous: 100, Inferred: true},
		{Op: object.Read, Ref: web, After: b, ResourceVersion: 100, Snapshot: "20261120T150000Z-100"},
		{Op: object.Entered, Ref: web, After: b, ResourceVersion: 103},
		{Op: object.Left, Ref: web, Before: b, ResourceVersion: 102, Previous: 100},
		{Stream: &object.StreamEvent{
			Kind:            object.SnapshotStarted,
			Resource:        pods,
			Scope:           "pods/team-?,!team-x?labelSelector=app in (a, b)",
			Snapshot:        "20261120T150000Z-100",
			ResourceVersion: 100,
			Objects:         3,
		}},
		{Stream: &object.StreamEvent{
			Kind:            object.SnapshotCompleted,
			Resource:        pods,
			Scope:           "pods",
			Snapshot:        "20261120T150000Z-100",
			ResourceVersion: 100,
		}},
		{Stream: &object.StreamEvent{
			Kind:     object.Gap,
			Resource: role,
			Scope:    "clusterroles.rbac.authorization.k8s.io",
			From:     100,
			To:       200,
			Since:    since,
			Reason:   "expired",
		}},
		{Stream: &object.StreamEvent{
			Kind: object.ScopeStarted, Resource: pods, Scope: "pods", ResourceVersion: 100, Continued: true,
			Observation: &object.Observation{
				Rules: []byte(`[{"namespaces":["shop"],"where":"object.spec.x > 1"}]`),
				Since: since,
			},
		}},
		{Stream: &object.StreamEvent{
			Kind:            object.ScopeEnded,
			Resource:        pods,
			Scope:           "pods",
			ResourceVersion: 200,
			End:             object.Replaced,
			Successors:      []string{"pods/a", "pods/b"},
		}},
		{Report: &object.Report{
			Number: 7, Since: since, To: since.Add(time.Minute), SnapshotBegan: since,
			Scopes: []object.ScopeReport{{Resource: role, ResourceVersion: 200}, {
				Resource:        pods,
				Count:           12,
				ResourceVersion: 100,
				History:         2,
			}},
		}},
		{Report: &object.Report{
			Number: 8, Since: since, Ends: true,
			Scopes: []object.ScopeReport{{
				Resource:        pods,
				Scope:           "pods/team-?,!team-x?labelSelector=app in (a, b)",
				ResourceVersion: 200,
				To:              since,
				Interruptions: []object.Interruption{{
					From:  since,
					Until: since.Add(time.Second),
					Why:   object.InterruptedCut,
				}},
				Hidden: []object.HiddenSpan{{From: object.Point{ResourceVersion: 150, Time: since}}},
			}},
		}},
	}
	for i, name := range []string{"system:node", `Euro € 😀 "100%" \`, "a b%20c", strings.Repeat("long/", 200)} {
		ref := object.NewRef(role, "", name, "uid-of-role")
		rv := uint64(300 + i)
		ds = append(ds, &object.Delta{Op: object.Created, Ref: ref, After: doc(ref, rv, `{}`), ResourceVersion: rv})
	}
	for i, d := range ds {
		d.Observed = time.Date(2026, 11, 20, 15, 0, i, 123456789, time.UTC).UnixNano()
	}
	return ds
}

// published returns the records of the agent's publisher for the deltas, read back from a server,
// and their content, read from structured mode as plain JSON. The two modes must have the same
// content.
func published(t testing.TB, mode encode.Mode) ([]record, []event) {
	t.Helper()
	b := startBus(t)
	b.publish(t, options(mode), deltas(t)...)
	records := b.records(t)
	if len(records) != len(deltas(t)) {
		t.Fatalf("%d records of %d deltas", len(records), len(deltas(t)))
	}
	return records, wanted(t)
}

// TestSDKs lets the SDKs parse a server's records of each kind of event.
func TestSDKs(t *testing.T) {
	t.Parallel()
	for _, sdk := range sdks {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(sdk.name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				argv := sdk.argv(t, "sdk")
				records, want := published(t, mode)
				got := parse(t, argv, records)
				if len(got) != len(want) {
					t.Fatalf("%d events of %d records", len(got), len(want))
				}
				for i := range got {
					if mode == encode.Binary && !sdk.decodes {
						percentDecode(t, got[i].Attributes)
					}
					compare(t, want[i], got[i], sdk.precision)
				}
			})
		}
	}
}

// parse lets a program of testdata parse records.
func parse(t testing.TB, argv []string, records []record) []event {
	t.Helper()
	var lines []any
	for _, r := range records {
		headers := map[string]string{}
		for name, values := range r.Header {
			headers[name] = values[0]
		}
		lines = append(lines, map[string]any{"headers": headers, "body": string(r.Body)})
	}
	return parseLines(t, argv, lines)
}

// parseLines sends a program a line of JSON for each record, and reads one for each event.
func parseLines(t testing.TB, argv []string, lines []any) []event {
	t.Helper()
	var in bytes.Buffer
	for _, l := range lines {
		line, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var events []event
	for line := range bytes.Lines(out) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		events = append(events, e)
	}
	return events
}

func compare(t testing.TB, want, got event, precision time.Duration) {
	t.Helper()
	want.Attributes, got.Attributes = maps.Clone(want.Attributes), maps.Clone(got.Attributes)
	for _, e := range []event{want, got} {
		at, err := time.Parse(time.RFC3339Nano, e.Attributes["time"])
		if err != nil {
			t.Error(err)
		}
		e.Attributes["time"] = at.UTC().Truncate(precision).Format(time.RFC3339Nano)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", want.Attributes["id"], diff)
	}
}

func percentDecode(t testing.TB, attributes map[string]string) {
	t.Helper()
	for name, value := range attributes {
		decoded, err := url.PathUnescape(value)
		if err != nil {
			t.Fatal(err)
		}
		attributes[name] = decoded
	}
}

// TestSDKGo receives both modes from a server by sdk-go's NATS protocol. It leaves attributes
// percent-encoded.
func TestSDKGo(t *testing.T) {
	t.Parallel()
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		t.Run(string(mode), func(t *testing.T) {
			records, want := published(t, mode)
			encoded := 0
			for i, r := range records {
				m := cenats.NewMessage(&nats.Msg{Subject: r.Subject, Header: r.Header, Data: r.Body})
				if binary := m.ReadEncoding() == binding.EncodingBinary; binary != (mode == encode.Binary) {
					t.Errorf("encoding is %v", m.ReadEncoding())
				}
				e, err := binding.ToEvent(t.Context(), m)
				if err != nil {
					t.Fatalf("%s: %v", want[i].Attributes["id"], err)
				}
				if err := e.Validate(); err != nil {
					t.Errorf("%s: %v", want[i].Attributes["id"], err)
				}
				got := event{Attributes: map[string]string{
					"specversion":     e.SpecVersion(),
					"id":              e.ID(),
					"source":          e.Source(),
					"type":            e.Type(),
					"subject":         e.Subject(),
					"time":            e.Time().Format(time.RFC3339Nano),
					"datacontenttype": e.DataContentType(),
					"dataschema":      e.DataSchema(),
				}}
				for name, value := range e.Extensions() {
					got.Attributes[name] = value.(string)
				}
				if err := e.DataAs(&got.Data); err != nil {
					t.Fatal(err)
				}
				if mode == encode.Binary {
					before := slices.Sorted(maps.Values(got.Attributes))
					percentDecode(t, got.Attributes)
					if !slices.Equal(before, slices.Sorted(maps.Values(got.Attributes))) {
						encoded++
					}
				}
				compare(t, want[i], got, time.Nanosecond)
			}
			if mode == encode.Binary && encoded == 0 {
				t.Error("no attribute was percent-encoded: the test shows nothing")
			}
		})
	}
}
