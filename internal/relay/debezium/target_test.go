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
	if want := "gap configmaps, snapshot.started configmaps, snapshot.completed configmaps, progress "; strings.Join(got, ", ") != want {
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
