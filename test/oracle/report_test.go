package oracle

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestOracleReadsProgress falsifies a progress event.
func TestOracleReadsProgress(t *testing.T) {
	text, err := os.ReadFile("../../internal/encode/testdata/golden/progress-interrupted.structured.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n\n")
	read := func(t *testing.T, falsify func(e, data map[string]any), m Message) Record {
		var e map[string]any
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		falsify(e, e["data"].(map[string]any))
		m.Body, err = json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return (&Reader{Cluster: "prod-eu-1", ClusterUID: "11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77"}).Read(m)
	}
	same := func(_, _ map[string]any) {}
	scope := func(data map[string]any, i int) map[string]any { return data["scopes"].([]any)[i].(map[string]any) }
	rec := read(t, same, Message{})
	p := rec.Report
	if p == nil || len(rec.Problems) > 0 || p.Number != 8 || !p.Ends || rec.Writer != fakeWriter ||
		len(p.Entries) != 2 {
		t.Fatalf("a correct event: %+v, %+v", rec, p)
	}
	e := p.Entries[1]
	if e.Rev != 48300 || len(e.Interruptions) != 2 || !e.Interruptions[1].Until.IsZero() ||
		len(e.Hidden) != 2 || e.Hidden[0].UntilRev != 48250 {
		t.Errorf("entry %+v", e)
	}
	if !p.Reaches("pods", 48300) || p.Reaches("pods", 48301) || p.Reaches("deployments.apps", 1) ||
		p.Reaches("secrets", 0) {
		t.Error("the event reaches other revisions than it says")
	}
	shared := read(t, func(_, data map[string]any) {
		delete(scope(data, 1), "to")
		delete(scope(data, 1), "snapshotBegan")
	}, Message{}).Report
	none, some := shared.Entries[0], shared.Entries[1]
	if some.To.IsZero() || some.SnapshotBegan.IsZero() || !none.To.IsZero() || !none.SnapshotBegan.IsZero() {
		t.Errorf("to and snapshotBegan are not those of the entries with a revision alone: %+v", shared.Entries)
	}

	for _, tc := range []struct {
		name    string
		message Message
		falsify func(e, data map[string]any)
	}{
		{"id", Message{}, func(e, _ map[string]any) { e["id"] = "progress/3f0a5c1e9b7d2846/0-1795186799000/9" }},
		{"subject", Message{}, func(e, _ map[string]any) { e["subject"] = "/progress" }},
		{"schema", Message{}, func(e, _ map[string]any) { e["dataschema"] = "https://kubecdc.dev/schema/stream/v1" }},
		{"partition key", Message{}, func(e, _ map[string]any) { e["partitionkey"] = "prod-eu-1/pods" }},
		{"attribute of an object", Message{}, func(e, _ map[string]any) { e["resource"] = "pods" }},
		{"epoch", Message{}, func(_, data map[string]any) { data["run"] = "1-1795186799000" }},
		{"writer", Message{}, func(_, data map[string]any) { data["writer"] = "agent" }},
		{"run", Message{}, func(_, data map[string]any) { data["run"] = "1795186799000" }},
		{"number", Message{}, func(_, data map[string]any) { data["number"] = 0 }},
		{"since", Message{}, func(_, data map[string]any) { delete(data, "since") }},
		{"reason", Message{}, func(_, data map[string]any) {
			scope(data, 1)["interruptions"].([]any)[0].(map[string]any)["why"] = "tired"
		}},
		{"scope of another resource", Message{}, func(_, data map[string]any) {
			scope(data, 1)["resource"] = "secrets"
		}},
		{"no resource", Message{}, func(_, data map[string]any) {
			delete(scope(data, 1), "resource")
			delete(scope(data, 1), "scope")
		}},
		{"revision", Message{}, func(_, data map[string]any) { scope(data, 1)["resourceVersion"] = "x" }},
		{"data", Message{}, func(_, data map[string]any) { data["scopes"] = 1 }},
		{"NATS subject", Message{Subject: "kubecdc.prod-eu-1.stream.core.pods"}, same},
		{"Kafka key", Message{Key: "prod-eu-1/progress/3f0a5c1e9b7d2846/1"}, same}, // It is of another partition.
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := read(t, tc.falsify, tc.message)
			if len(rec.Problems) == 0 {
				t.Errorf("no problem: %+v", rec)
			}
		})
	}
}
