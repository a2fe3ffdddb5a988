package debezium_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/relay/debezium"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var update = flag.Bool("update", false, "write the golden files anew")

// at is the time of all rows of these tests.
var at = time.Date(2026, 11, 20, 15, 0, 1, 0, time.UTC)

const (
	before = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"48007"},"spec":{"replicas":3}}`
	after  = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"48211"},"spec":{"replicas":5}}`
)

// event parses the event of a deployment, with these members of data.
func event(t testing.TB, typ string, op consume.Op, data string) *consume.Event {
	t.Helper()
	e, err := consume.Parse(
		fmt.Appendf(nil, `{"specversion":"1.0","id":"deployments.apps/u1/48211","source":"/kubernetes/prod",
		"type":"dev.kubecdc.object.%s","subject":"/apis/apps/v1/namespaces/shop/deployments/web","time":"2026-11-20T15:00:00.123456789Z",
		"datacontenttype":"application/json","dataschema":"https://kubecdc.dev/schema/object/v1","cluster":"prod","clusteruid":"c1",
		"apiversion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","uid":"u1","op":%q,
		"resourceversion":"48211","sequence":"00000000000000048211","partitionkey":"prod/apps/deployments/shop/web",
		"data":{"op":%[2]q,"resourceVersion":"48211"%s}}`, typ, op, data))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRows compares the row of each operation, with all parts and without some, with a golden file.
func TestRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ  string
		op   consume.Op
		data string
	}{
		"created": {"created", consume.Created, `,"before":null,"after":` + after},
		"created-truncated": {
			"created", consume.Created, `,"before":null,"truncated":["after"],"dataref":"file:///large/1.json"`,
		},
		"updated":                {"updated", consume.Updated, `,"before":` + before + `,"after":` + after},
		"updated-without-before": {"updated", consume.Updated, `,"after":` + after},
		"updated-without-objects": {
			"updated", consume.Updated, `,"truncated":["before","after","patch"],"dataref":"file:///large/1.json"`,
		},
		"deleted": {"deleted", consume.Deleted, `,"before":` + before + `,"after":null`},
		"deleted-inferred": {
			"deleted", consume.Deleted, `,"before":` + before + `,"after":null,"inferred":true`,
		},
		"deleted-without-before": {"deleted", consume.Deleted, `,"after":null`},
		"read": {
			"read", consume.Read, `,"after":` + after + `,"snapshot":"20261120T150000.000Z-48211"`,
		},
		"entered": {"entered", consume.Entered, `,"before":` + before + `,"after":` + after},
		"left":    {"left", consume.Left, `,"before":` + before},
		"redacted": {
			"created", consume.Created,
			`,"before":null,"after":` + strings.Replace(after, `{"replicas":5}`, `{"a":"<b> & c"}`, 1) +
				`,"redacted":true`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := event(t, c.typ, c.op, c.data)
			value, gone, err := debezium.Row(e, false, at)
			if err != nil {
				t.Fatal(err)
			}
			if want := c.op == consume.Deleted || c.op == consume.Left; gone != want {
				t.Errorf("gone is %t, want %t: a tombstone follows", gone, want)
			}
			checkEnvelope(t, value)
			golden(t, name, value)
			if _, err := consume.Parse(value); err == nil {
				t.Error("a reader of records takes the row for a record")
			}
		})
	}
}

// checkEnvelope checks a row by the rules of Flink's debezium-json, which end a job: c, r and u
// have an after, u and d have a before. Source: DebeziumJsonDeserializationSchema of Flink 2.2.
func checkEnvelope(t testing.TB, value []byte) {
	t.Helper()
	var row struct {
		Before, After map[string]any
		Op            string
		Source        map[string]any
	}
	if err := json.Unmarshal(value, &row); err != nil {
		t.Fatal(err)
	}
	needs := map[string][2]bool{"c": {false, true}, "r": {false, true}, "u": {true, true}, "d": {true, false}}
	need, ok := needs[row.Op]
	if has := [2]bool{row.Before != nil, row.After != nil}; !ok || has != need {
		t.Errorf("op %q has before and after: %v, want %v: %s", row.Op, has, need, value)
	}
	for name, member := range row.Source {
		switch member.(type) {
		case string, float64, bool:
		default:
			t.Errorf("source.%s is no scalar: Flink reads source as a map of texts", name)
		}
	}
}

func golden(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden.json")
	var value any
	if err := json.Unmarshal(got, &value); err != nil {
		t.Fatal(err)
	}
	text := append(got, '\n')
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
