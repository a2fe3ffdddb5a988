package debezium_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// TestStreamEventsAreApart checks that events about the stream go to their own topic, and that no
// reader takes them for records.
func TestStreamEventsAreApart(t *testing.T) {
	t.Parallel()
	w, p := newWorld(), &pair{}
	w.change("a", true, true)
	w.snapshot(nil, 0, func() {})
	w.send("progress", "progress/1", `"partitionkey":"prod/progress"`,
		`{"writer":"w","run":"0-1","number":1,"since":"2026-11-20T15:00:00Z","scopes":[{"resource":"configmaps","resourceVersion":"100"}]}`)
	if err := p.relayed(&source{records: w.record, first: 1}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.stream.records {
		var row struct{ Event, Scope string }
		if err := json.Unmarshal(r.value, &row); err != nil {
			t.Fatal(err)
		}
		got = append(got, row.Event+" "+row.Scope)
		if _, err := consume.Parse(r.value); err == nil {
			t.Errorf("a reader takes it for a record: %s", r.value)
		}
	}
	if want := "gap configmaps, snapshot.started configmaps, snapshot.completed configmaps, progress "; strings.Join(
		got, ", ") != want {
		t.Errorf("stream events: %s, want %s", strings.Join(got, ", "), want)
	}
	if len(p.rows.records) != 2 {
		t.Errorf("%d rows, want a create and a read", len(p.rows.records))
	}
}

// TestTooLargeWithoutBefore checks that a row that is too large is sent as a read, without the
// object before.
func TestTooLargeWithoutBefore(t *testing.T) {
	t.Parallel()
	w, p := newWorld(), &pair{}
	w.change("a", true, true)
	w.change("a", true, true)
	p.rows.refuse = func(value []byte) error {
		if strings.Contains(string(value), `"op":"u"`) {
			return fmt.Errorf("event: %w", publish.ErrTooLarge)
		}
		return nil
	}
	if err := p.relayed(&source{records: w.record, first: 1}); err != nil {
		t.Fatal(err)
	}
	if n := len(p.rows.records); n != 2 || !strings.Contains(string(p.rows.records[n-1].value), `"op":"r"`) {
		t.Errorf("rows: %s", p.rows.records)
	}
}

// TestSweepIsRetried checks that a sweep waits for a topic that cannot be read.
func TestSweepIsRetried(t *testing.T) {
	t.Parallel()
	w, p := newWorld(), &pair{}
	w.change("a", true, true)
	w.remove("a", false, false)
	w.snapshot(nil, 0, func() {})
	p.rows.unread = 1
	if err := p.relayed(&source{records: w.record, first: 1}); err != nil {
		t.Fatal(err)
	}
	if rows := p.rows.table(t); len(rows) > 0 {
		t.Errorf("rows of objects that do not exist: %v", rows)
	}
}

// TestLossesSweepNothing checks that a snapshot deletes no row if records are missing that may have
// been its reads, and the next one does.
func TestLossesSweepNothing(t *testing.T) {
	t.Parallel()
	w, p := newWorld(), &pair{}
	w.change("a", true, true)
	w.change("b", true, true)
	w.remove("b", false, false)
	w.snapshot(nil, 0, func() {})
	var records []*consume.Event
	for _, e := range w.record {
		if e.Op != consume.Read {
			records = append(records, e)
		}
	}
	first := 2 // without gap
	if err := p.relayed(&source{records: records[:first], first: 1}); err != nil {
		t.Fatal(err)
	}
	if err := p.relayed(&source{records: records[first:], first: 3, miss: true}); err != nil {
		t.Fatal(err)
	}
	if rows := p.rows.table(t); len(rows) != 2 {
		t.Errorf("%v, want both rows: the read of one is missing", rows)
	}
	w.clock = time.Now().Add(time.Hour)
	w.snapshot(nil, 0, func() {})
	if err := p.relayed(&source{records: w.record[len(w.record)-4:], first: 9}); err != nil {
		t.Fatal(err)
	}
	if rows := p.rows.table(t); len(rows) != 1 {
		t.Errorf("%v, want one row", rows)
	}
}

// TestObjectsMoveBetweenScopes checks events of scopes with selectors. An object that moves has a
// left and an entered of one version, in either order, and exists. One that is selected again has
// reads of a version below that of its left.
func TestObjectsMoveBetweenScopes(t *testing.T) {
	t.Parallel()
	type step struct {
		op      consume.Op
		version int
		scope   string
	}
	const a, b = "configmaps?labelSelector=team=a", "configmaps?labelSelector=team=b"
	types := map[consume.Op]string{
		consume.Created: "created",
		consume.Deleted: "deleted",
		consume.Entered: "entered",
		consume.Left:    "left",
		consume.Read:    "read",
		consume.Updated: "updated",
	}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"left first":     {[]step{{consume.Created, 1, a}, {consume.Left, 2, a}, {consume.Entered, 2, b}}, "u1 2"},
		"entered first":  {[]step{{consume.Created, 1, a}, {consume.Entered, 2, b}, {consume.Left, 2, a}}, "u1 2"},
		"left for good":  {[]step{{consume.Created, 1, a}, {consume.Left, 2, a}}, ""},
		"selected again": {[]step{{consume.Created, 1, a}, {consume.Left, 9, a}, {consume.Read, 1, a}}, "u1 1"},
		"late update":    {[]step{{consume.Created, 1, a}, {consume.Left, 2, a}, {consume.Updated, 2, a}}, ""},
		"late creation":  {[]step{{consume.Created, 1, a}, {consume.Updated, 2, a}, {consume.Created, 1, a}}, "u1 2"},
		"late deletion":  {[]step{{consume.Created, 1, a}, {consume.Deleted, 2, a}, {consume.Created, 1, a}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(), &pair{}
			for _, s := range c.steps {
				o := &thing{name: "x", uid: "u1", version: s.version}
				w.send("object."+types[s.op], fmt.Sprint("configmaps/u1/", s.version, s.op), fmt.Sprintf(
					`"namespace":"shop","name":"x","uid":"u1","op":%q,"resourceversion":"%d","sequence":"%020d","scope":%q,"partitionkey":"x"`,
					s.op, s.version, s.version, s.scope),
					fmt.Sprintf(`{"op":%q,"resourceVersion":"%d","snapshot":"s1","before":%s,"after":%[3]s}`, s.op,
						s.version, o.json()))
			}
			if err := p.relayed(&source{records: w.record, first: 1}); err != nil {
				t.Fatal(err)
			}
			if got := p.rows.table(t)["x"]; got != c.want {
				t.Errorf("row %q, want %q", got, c.want)
			}
		})
	}
}
