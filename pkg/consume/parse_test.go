package consume_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

const updated = `{"specversion":"1.0","id":"deployments.apps/7c0e/48211","source":"/kubernetes/prod-eu-1",` +
	`"type":"dev.kubecdc.object.updated","subject":"/apis/apps/v1/namespaces/shop/deployments/web",` +
	`"time":"2026-11-20T15:00:00.123456789Z","datacontenttype":"application/json",` +
	`"dataschema":"https://kubecdc.dev/schema/object/v1","cluster":"prod-eu-1","clusteruid":"11e0",` +
	`"apiversion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","uid":"7c0e",` +
	`"op":"u","resourceversion":"48211","sequence":"00000000000000048211","partitionkey":"prod-eu-1/apps/deployments/shop/web",` +
	`"epoch":"3","traceparent":"00-1-2-01",` +
	`"data":{"op":"u","resourceVersion":"48211","previousResourceVersion":"48007","inferred":true,"redacted":false,"skipped":2,` +
	`"before":{"spec":{"replicas":3}},"after":{"spec":{"replicas":5}},` +
	`"patch":[{"op":"replace","path":"/spec/replicas","value":5}],` +
	`"changedBy":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z","fields":{}},{"manager":"hpa"}],` +
	`"truncated":["patch"],"dataref":"s3://x","tomorrow":{"a":[1]}}}`

var unexported = cmpopts.IgnoreUnexported(consume.Event{})

func TestParse(t *testing.T) {
	want := &consume.Event{
		ID: "deployments.apps/7c0e/48211", Source: "/kubernetes/prod-eu-1", Type: "dev.kubecdc.object.updated",
		Subject:         "/apis/apps/v1/namespaces/shop/deployments/web",
		Time:            time.Date(2026, 11, 20, 15, 0, 0, 123456789, time.UTC),
		DataContentType: "application/json",
		DataSchema:      "https://kubecdc.dev/schema/object/v1",
		Cluster:         "prod-eu-1",
		ClusterUID:      "11e0",
		APIVersion:      "apps/v1",
		Kind:            "Deployment",
		Resource:        "deployments",
		Namespace:       "shop",
		Name:            "web",
		UID:             "7c0e",
		Op:              consume.Updated,
		ResourceVersion: "48211",
		Sequence:        "00000000000000048211",
		PartitionKey:    "prod-eu-1/apps/deployments/shop/web",
		Epoch:           "3",
		TraceParent:     "00-1-2-01",
		Data: &consume.Data{
			Op:                      consume.Updated,
			ResourceVersion:         "48211",
			PreviousResourceVersion: "48007",
			Inferred:                true,
			Redacted:                new(false),
			Skipped:                 2,
			Before:                  json.RawMessage(`{"spec":{"replicas":3}}`),
			After:                   json.RawMessage(`{"spec":{"replicas":5}}`),
			Patch:                   json.RawMessage(`[{"op":"replace","path":"/spec/replicas","value":5}]`),
			ChangedBy: []consume.Change{
				{Manager: "kubectl-edit", Operation: "Update", Time: time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)},
				{Manager: "hpa"},
			},
			Truncated: []string{"patch"},
			DataRef:   "s3://x",
		},
	}
	if diff := cmp.Diff(want, parse(t, updated), unexported); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A null member means that there is no value, and an absent one that the value is unknown. The
// order of members, escapes and duplicate members do not matter.
func TestParseMembers(t *testing.T) {
	created := parse(t, replaced(t, updated, `"before":{"spec":{"replicas":3}}`, `"before":null`))
	if string(created.Data.Before) != "null" {
		t.Errorf("before is %q, want null", created.Data.Before)
	}
	read := parse(t, replaced(t, updated, `"before":{"spec":{"replicas":3}},`, ``))
	if read.Data.Before != nil {
		t.Errorf("before is %q, want none", read.Data.Before)
	}
	dataFirst := parse(t, `{"data":{"snapshot":"a","objects":3},"scope":"pods","apiversion":"v1","resource":"pods",
		"id":"x","id":"pods\u002f\"1","source":"/k","namespace":null,"type":"dev.kubecdc.snapshot.started","specversion":"1.0"}`)
	want := &consume.Event{
		ID:         `pods/"1`,
		Source:     "/k",
		Type:       consume.TypeSnapshotStarted,
		Scope:      "pods",
		APIVersion: "v1",
		Resource:   "pods",
		Stream:     &consume.Stream{Snapshot: "a", Objects: 3},
	}
	if diff := cmp.Diff(want, dataFirst, unexported); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestParseGolden(t *testing.T) {
	binary := map[string]*consume.Event{}
	for _, r := range consumetest.Goldens(t, "binary") {
		e, err := consume.FromMessage(r.Header, r.Body)
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		binary[r.Name] = e
	}
	for _, r := range consumetest.Goldens(t, "structured") {
		e, err := consume.FromMessage(r.Header, r.Body)
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		contents := 0
		for _, isThere := range []bool{e.Data != nil, e.Stream != nil, e.Progress != nil} {
			if isThere {
				contents++
			}
		}
		if contents != 1 {
			t.Errorf("%s: data %v, stream %v, progress %v", r.Name, e.Data, e.Stream, e.Progress)
		}
		if diff := cmp.Diff(e, binary[r.Name], unexported); diff != "" {
			t.Errorf("%s: -structured +binary\n%s", r.Name, diff)
		}
		// Both are written as the agent writes structured ones.
		for mode, e := range map[string]*consume.Event{"structured": e, "binary": binary[r.Name]} {
			got, err := e.MarshalJSON()
			if err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
			if diff := cmp.Diff(string(r.Body), string(got)); diff != "" {
				t.Errorf("%s, read in %s mode: -want +written\n%s", r.Name, mode, diff)
			}
		}
		again, err := json.Marshal(&consume.Event{
			ID:         e.ID,
			Source:     e.Source,
			Type:       e.Type,
			APIVersion: e.APIVersion,
			Resource:   e.Resource,
			Name:       e.Name,
			UID:        e.UID,
			Op:         e.Op,
			Scope:      e.Scope,
			Data:       e.Data,
			Stream:     e.Stream,
			Progress:   e.Progress,
		})
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		made := parse(t, string(again))
		if diff := cmp.Diff([]any{e.Data, e.Stream, e.Progress}, []any{
			made.Data, made.Stream, made.Progress,
		}); diff != "" {
			t.Errorf("%s: -want +made from fields\n%s", r.Name, diff)
		}
	}
}

const progress = `{"specversion":"1.0","id":"progress/3f0a/2-1795186799000/8","source":"/kubernetes/prod-eu-1",` +
	`"type":"dev.kubecdc.progress","subject":"/progress/3f0a","time":"2026-11-20T15:00:00Z","clusteruid":"11e0","epoch":"2",` +
	`"data":{"writer":"3f0a","run":"2-1795186799000","number":8,"checkpoint":"configmap kubecdc/positions","node":"n1","apiServerVersion":"v1.37.1",` +
	`"since":"2026-11-20T14:50:00Z","to":"2026-11-20T14:59:29Z","snapshotBegan":"2026-11-20T14:00:00Z","etcd":"1","ends":true,"scopes":[` +
	`{"resource":"deployments.apps","scope":"deployments.apps/shop","etcd":"unknown"},` +
	`{"resource":"pods","count":7,"resourceVersion":"48300","history":2,"tomorrow":[1]},` +
	`{"resource":"pods","scope":"pods/shop","resourceVersion":"48310","to":"2026-11-20T14:58:00Z","snapshotBegan":"2026-11-20T13:00:00Z",` +
	`"interruptions":[{"why":"cut","from":"2026-11-20T14:51:00Z","until":"2026-11-20T14:52:00Z"},{"why":"blocked","from":"2026-11-20T14:58:00Z"}],` +
	`"hidden":[{"fromResourceVersion":"48001","from":"2026-11-20T14:53:00Z","untilResourceVersion":"48250","until":"2026-11-20T14:55:00Z"},` +
	`{"fromResourceVersion":"48290"}]}],"tomorrow":{}}}`

func TestParseProgress(t *testing.T) {
	at := func(clock string) time.Time {
		at, err := time.Parse(time.RFC3339, "2026-11-20T"+clock+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	want := &consume.Progress{
		Writer:           "3f0a",
		Run:              "2-1795186799000",
		Number:           8,
		Checkpoint:       "configmap kubecdc/positions",
		Node:             "n1",
		APIServerVersion: "v1.37.1",
		Since:            at("14:50:00"),
		To:               at("14:59:29"),
		SnapshotBegan:    at("14:00:00"),
		Etcd:             "1",
		Ends:             true,
		Scopes: []consume.ScopeProgress{
			// nothing is claimed, and nothing copied
			{Resource: "deployments.apps", Scope: "deployments.apps/shop", Etcd: consume.EtcdUnknown},
			{
				Resource:        "pods",
				Etcd:            "1",
				Count:           7,
				ResourceVersion: "48300",
				History:         2,
				To:              at("14:59:29"),
				SnapshotBegan:   at("14:00:00"),
			},
			{
				Resource:        "pods",
				Scope:           "pods/shop",
				Etcd:            "1",
				ResourceVersion: "48310",
				To:              at("14:58:00"),
				SnapshotBegan:   at("13:00:00"),
				Interruptions: []consume.Interruption{
					{Why: consume.InterruptedCut, From: at("14:51:00"), Until: at("14:52:00")},
					{Why: consume.InterruptedBlocked, From: at("14:58:00")},
				},
				Hidden: []consume.HiddenSpan{
					{
						From:                 at("14:53:00"),
						FromResourceVersion:  "48001",
						Until:                at("14:55:00"),
						UntilResourceVersion: "48250",
					},
					{FromResourceVersion: "48290"},
				},
			},
		},
	}
	e := parse(t, progress)
	if diff := cmp.Diff(want, e.Progress); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if e.Data != nil || e.Stream != nil || e.IsFormerProgress() || e.Epoch != "2" {
		t.Errorf("data %v, stream %v, former: %t, epoch %q", e.Data, e.Stream, e.IsFormerProgress(), e.Epoch)
	}
	for i, h := range e.Progress.Scopes[2].Hidden {
		if h.IsOpen() != (i == 1) {
			t.Errorf("hidden span %d is open: %t", i, h.IsOpen())
		}
	}
	small := parse(t, `{"specversion":"1.0","id":"progress/3f0a/0-1/1","source":"/k","type":"dev.kubecdc.progress",`+
		`"data":{"scopes":null,"node":null,"writer":"3f0a","run":"0-1","number":1}}`)
	if diff := cmp.Diff(&consume.Progress{Writer: "3f0a", Run: "0-1", Number: 1}, small.Progress); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The progress that former releases sent for each scope is in records for as long as these are
// kept.
func TestParseFormerProgress(t *testing.T) {
	const former = `{"specversion":"1.0","id":"pods/progress/52100/1795186800/h2","source":"/kubernetes/prod-eu-1","type":"dev.kubecdc.progress",` +
		`"apiversion":"v1","resource":"pods","scope":"pods","sequence":"00000000000000052100","data":{"resourceVersion":"52100"}}`
	for name, record := range map[string]string{
		"whole":        former,
		"without data": replaced(t, former, `"data":{"resourceVersion":"52100"}`, `"x":1`),
	} {
		e := parse(t, record)
		if !e.IsFormerProgress() || e.Data != nil || e.Stream != nil || e.Progress != nil {
			t.Errorf("%s: former: %t, data %v, stream %v, progress %v", name, e.IsFormerProgress(), e.Data, e.Stream,
				e.Progress)
		}
		if e.GroupResource() != "pods" || e.Scope != "pods" || e.History() != 2 {
			t.Errorf("%s: resource %s, scope %s, history %d", name, e.GroupResource(), e.Scope, e.History())
		}
		if got, err := e.MarshalJSON(); err != nil || string(got) != record {
			t.Errorf("%s: written %s, %v", name, got, err)
		}
	}
	if e := parse(t, updated); e.IsFormerProgress() {
		t.Error("an event of an object is former progress")
	}
}

// Parse accepts and keeps additions that the contract allows.
func TestParseUnknown(t *testing.T) {
	later := `{"specversion":"1.0","id":"a/b","source":"/k","type":"dev.kubecdc.weather","answer":42,"fine":true,"x":"<é\"","data":[1]}`
	e := parse(t, later)
	want := &consume.Event{
		ID: "a/b", Source: "/k", Type: "dev.kubecdc.weather", Extensions: map[string]string{
			"answer": "42",
			"fine":   "true",
			"x":      `<é"`,
		},
	}
	if diff := cmp.Diff(want, e, unexported); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got, err := e.MarshalJSON(); err != nil || string(got) != later {
		t.Errorf("written %s, %v", got, err)
	}

	e, err := consume.FromMessage(map[string][]string{
		"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"a/b"}, "Ce-Source": {"/k"},
		"Ce-Type": {"dev.kubecdc.weather"}, "ce-x": {"%3C%C3%A9%22 100%"}, "Nats-Msg-Id": {"z"}, "Ce-Empty": {},
	}, []byte(`[1]`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.MarshalJSON()
	const written = `{"specversion":"1.0","id":"a/b","source":"/k","type":"dev.kubecdc.weather","x":"<é\" 100%","data":[1]}`
	if err != nil || string(got) != written {
		t.Errorf("written %s, %v", got, err)
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct {
		name, record, want string
		foreign            bool // ErrNotKubecdc
	}{
		{"empty", ``, "JSON ends before the value does", false},
		{"cut off", updated[:len(updated)/2], "JSON ends before the value does", false},
		{"more behind", updated + `{}`, `JSON syntax at byte 1060: unexpected '{'`, false},
		{
			"comma", replaced(t, updated, `"skipped":2,`, `"skipped":2,,`), `JSON syntax at byte 749: unexpected ','`,
			false,
		},
		{"control character in an object", replaced(t, updated, `{"replicas":3}`, "\"\n\""), `unexpected '\n'`, false},
		{"no object", `["a"]`, "not an event of kubecdc: the record is not a JSON object", true},
		{
			"not a CloudEvent", `{"id":"a"}`,
			"not an event of kubecdc: no CloudEvent, it has no specversion, source, type", true,
		},
		{
			"another CloudEvent", `{"specversion":"1.0","id":"a","source":"b","type":"com.github.push"}`,
			`its type is "com.github.push", want dev.kubecdc.…`, true,
		},
		{"another version", replaced(t, updated, `"1.0"`, `"0.3"`), `specversion is "0.3", want 1.0`, true},
		{
			"no uid", replaced(t, updated, `"uid":"7c0e",`, ``),
			`dev.kubecdc.object.updated deployments.apps/7c0e/48211 has no uid`, true,
		},
		{"no data", updated[:strings.Index(updated, `"data"`)] + `"data_base64":"e30="}`, "has no data", true},
		{"data is no object", updated[:strings.Index(updated, `"data"`)] + `"data":"{}"}`, "has no data", true},
		{
			"no scope", `{"specversion":"1.0","id":"a","source":"b","type":"dev.kubecdc.gap","data":{}}`,
			"dev.kubecdc.gap a has no apiversion, resource, scope", true,
		},
		{"attribute", replaced(t, updated, `"uid":"7c0e"`, `"uid":7`), "attribute uid is not a string", false},
		{
			"extension", replaced(t, updated, `"epoch":"3"`, `"x":{}`),
			"attribute x is neither a string nor a number nor a boolean", false,
		},
		{
			"time", replaced(t, updated, `2026-11-20T15:00:00.123456789Z`, `today`),
			`attribute time is not an RFC 3339 time: "today"`, false,
		},
		{
			"time is a number", replaced(t, updated, `"2026-11-20T15:00:00.123456789Z"`, `1`),
			"attribute time is not a string", false,
		},
		{
			"inferred", replaced(t, updated, `"inferred":true`, `"inferred":"yes"`), "data.inferred is not a boolean",
			false,
		},
		{"redacted", replaced(t, updated, `"redacted":false`, `"redacted":0`), "data.redacted is not a boolean", false},
		{"skipped", replaced(t, updated, `"skipped":2`, `"skipped":2.5`), "data.skipped is not an integer", false},
		{"patch", replaced(t, updated, `"patch":[`, `"patch":{},"x":[`), "data.patch is not an array", false},
		{"before", replaced(t, updated, `"before":{`, `"before":[],"x":{`), "data.before is not an object", false},
		{
			"changedBy", replaced(t, updated, `"changedBy":[`, `"changedBy":[1,`),
			"data.changedBy is not an array of objects", false,
		},
		{
			"changedBy.time", replaced(t, updated, `"2026-11-20T15:00:00Z"`, `"now"`),
			"data.changedBy.time is not an RFC 3339 time", false,
		},
		{"progress without data", progress[:strings.Index(progress, `"data"`)] + `"x":1}`, "has no data", true},
		{
			"no writer", replaced(t, progress, `"writer":"3f0a",`, ``),
			"dev.kubecdc.progress progress/3f0a/2-1795186799000/8 has no data.writer", true,
		},
		{
			"neither writer nor run",
			replaced(t, progress, `"writer":"3f0a","run":"2-1795186799000"`, `"writer":"","run":null`),
			"has no data.writer, data.run", true,
		},
		{"run", replaced(t, progress, `"run":"2-1795186799000"`, `"run":2`), "data.run is not a string", false},
		{"number", replaced(t, progress, `"number":8`, `"number":"8"`), "data.number is not an integer", false},
		{
			"since", replaced(t, progress, `"since":"2026-11-20T14:50:00Z"`, `"since":"today"`),
			"data.since is not an RFC 3339 time", false,
		},
		{"ends", replaced(t, progress, `"ends":true`, `"ends":1`), "data.ends is not a boolean", false},
		{"scopes", replaced(t, progress, `"count":7`, `"count":"7"`), "data.scopes is not an array of scopes", false},
		{
			"interruptions", replaced(t, progress, `"until":"2026-11-20T14:52:00Z"`, `"until":"later"`),
			"data.scopes is not an array of scopes", false,
		},
		{"truncated", replaced(t, updated, `["patch"]`, `[1]`), "data.truncated is not an array of strings", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := consume.Parse([]byte(tc.record))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
			if errors.Is(err, consume.ErrNotKubecdc) != tc.foreign {
				t.Errorf("%v: wraps ErrNotKubecdc: %v", err, !tc.foreign)
			}
		})
	}
	_, err := consume.FromMessage(map[string][]string{"content-type": {
		"application/cloudevents-batch+json",
	}}, []byte(`[]`))
	const want = "not an event of kubecdc: " +
		"content-type is application/cloudevents-batch+json, want application/cloudevents+json"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

func replaced(tb testing.TB, s, from, to string) string {
	tb.Helper()
	if strings.Count(s, from) != 1 {
		tb.Fatalf("%q is in the record %d times", from, strings.Count(s, from))
	}
	return strings.Replace(s, from, to, 1)
}

// FuzzParse compares Parse with encoding/json: both accept the same records and read the same
// values.
func FuzzParse(f *testing.F) {
	for _, r := range consumetest.Goldens(f, "structured") {
		f.Add(r.Body)
	}
	f.Add([]byte(updated))
	f.Add([]byte(" { \"d\\u0061ta\" : {\"\\u0062efore\":null} , \"id\":\"\\ud800\xff\" }\n"))
	f.Fuzz(func(t *testing.T, record []byte) {
		e, err := consume.Parse(record)
		var members map[string]json.RawMessage
		if !json.Valid(record) {
			if err == nil || errors.Is(err, consume.ErrNotKubecdc) {
				t.Fatalf("not JSON, and the error is %v", err)
			}
			return
		}
		if err != nil || json.Unmarshal(record, &members) != nil {
			return
		}
		text := func(name string) (s string) {
			if raw, ok := members[name]; ok && json.Unmarshal(raw, &s) != nil {
				t.Fatalf("%s is not a string, and no error says so", name)
			}
			return s
		}
		for name, got := range map[string]string{
			"id":        e.ID,
			"source":    e.Source,
			"type":      string(e.Type),
			"subject":   e.Subject,
			"uid":       e.UID,
			"name":      e.Name,
			"op":        string(e.Op),
			"namespace": e.Namespace,
			"scope":     e.Scope,
			"sequence":  e.Sequence,
			"kind":      e.Kind,
		} {
			if want := text(name); got != want {
				t.Fatalf("%s is %q, want %q", name, got, want)
			}
		}
		if e.Data == nil {
			return
		}
		var data map[string]json.RawMessage
		if err := json.Unmarshal(members["data"], &data); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{string(data["before"]), string(data["after"])}, []string{
			string(e.Data.Before), string(e.Data.After),
		}); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
		if patch := string(data["patch"]); patch != string(e.Data.Patch) && patch != "null" {
			t.Fatalf("patch is %s, want %s", e.Data.Patch, patch)
		}
	})
}

// An API server accepts objects of nearly 10,000 levels, and encoding/json no more than that. The
// levels of the record around the object do not count.
func TestParseDeepObject(t *testing.T) {
	const most = 10_000
	deep := strings.Repeat(`{"a":`, most) + "1" + strings.Repeat(`}`, most)
	e, err := consume.Parse([]byte(replaced(t, updated, `"after":{"spec":{"replicas":5}}`, `"after":`+deep)))
	if err != nil {
		t.Fatal(err)
	}
	if string(e.Data.After) != deep {
		t.Errorf("after has %d bytes, want %d", len(e.Data.After), len(deep))
	}
	if record, err := e.MarshalJSON(); err != nil || !strings.Contains(string(record), deep) {
		t.Errorf("the record has %d bytes: %v", len(record), err)
	}
	if _, err := consume.Parse(
		[]byte(replaced(t, updated, `"after":{"spec":{"replicas":5}}`, `"after":[`+deep+`]`))); err == nil {
		t.Error("no error for an object of more levels")
	}
}
