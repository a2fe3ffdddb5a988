package debezium_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/relay/debezium"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topic is a topic of Kafka in memory.
type topic struct {
	mu      sync.Mutex
	records []kept
	refuse  func(value []byte) error // nil: it accepts all
	unread  int                      // scans that fail
}

type kept struct{ key, value []byte } // a nil value is a tombstone

func (l *topic) Publish(e *publish.Event) {
	l.mu.Lock()
	var err error
	if l.refuse != nil {
		err = l.refuse(e.Body)
	}
	if err == nil {
		l.records = append(l.records, kept{slices.Clone(e.PartitionKey), slices.Clone(e.Body)})
		if e.Delta.Op == object.Deleted {
			l.records = append(l.records, kept{key: slices.Clone(e.PartitionKey)})
		}
	}
	l.mu.Unlock()
	e.Done(err)
}

func (l *topic) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (l *topic) Ready() error { return nil }

func (l *topic) Scan(_ context.Context, _ *object.Resource, each func(key, value []byte) error) error {
	l.mu.Lock()
	all := slices.Clone(l.records)
	fails := l.unread > 0
	l.unread--
	l.mu.Unlock()
	if fails {
		return errors.New("no leader")
	}
	for _, r := range all {
		if err := each(r.key, r.value); err != nil {
			return err
		}
	}
	return nil
}

// table returns the rows that remain in the topic, by key: the uid, and the version of the object
// after. It applies Debezium's rules, with a primary key: c, r and u replace the row, d and a
// tombstone remove it.
func (l *topic) table(t fatal) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := map[string]string{}
	for i, r := range l.records {
		if r.value == nil {
			if _, ok := rows[string(r.key)]; ok {
				t.Fatalf("record %d: a tombstone for %s without a delete before it", i, r.key)
			}
			continue
		}
		var row struct {
			Op     string
			Before *struct{ Metadata struct{ UID string } }
			After  *struct {
				Metadata struct{ UID, ResourceVersion string }
			}
		}
		if err := json.Unmarshal(r.value, &row); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		switch {
		case row.Op == "d" && row.Before != nil && row.After == nil:
			delete(rows, string(r.key))
		case row.After != nil && (row.Op == "c" || row.Op == "r" || row.Op == "u" && row.Before != nil):
			rows[string(r.key)] = row.After.Metadata.UID + " " + row.After.Metadata.ResourceVersion
		default:
			t.Fatalf("record %d is no row: %s", i, r.value)
		}
	}
	return rows
}

type fatal interface {
	Fatalf(format string, args ...any)
}

// source has records for a relay.
type source struct {
	records []*consume.Event
	first   uint64
	miss    bool // records before the first one are gone
}

func (s *source) Open(context.Context) error { return nil }

func (s *source) Next(context.Context) (*driver.Record, error) {
	switch {
	case s.miss:
		s.miss = false
		return nil, &consume.MissedError{From: s.first, To: s.first}
	case len(s.records) == 0:
		return nil, io.EOF
	}
	r := &driver.Record{Log: consume.Log{Name: "KUBECDC"}, Position: s.first, Event: s.records[0], Copies: 1}
	s.records, s.first = s.records[1:], s.first+1
	return r, nil
}

func (s *source) Save(context.Context, []driver.Mark) error { return nil }

func (s *source) Behind(context.Context, []driver.Mark) (uint64, error) { return 0, nil }
func (s *source) Ready() error                                          { return nil }
func (s *source) Close() error                                          { return nil }

// pair is the two topics of a table.
type pair struct{ rows, stream topic }

// relayed sends events by way of a relay that starts, and ends after them.
func (p *pair) relayed(s *source) error {
	log := slog.New(slog.DiscardHandler)
	target := debezium.New(debezium.Options{Changelog: driver.Changelog{Rows: &p.rows, Stream: &p.stream}, Log: log})
	return relay.New(relay.Options{Name: "r", Subscription: s, Target: target}, log, nil).Run(context.Background())
}

// world is a cluster with ConfigMaps, the agent that records them, and the record.
type world struct {
	version, uids, snapshots int
	objects                  map[string]*thing // that exist, by name
	seen                     map[string]*thing // that the agent knows
	record                   []*consume.Event
	clock                    time.Time
	step                     time.Duration // between two changes
	restored                 bool          // then the rules know only after a snapshot what exists
}

type thing struct {
	name, uid string
	version   int
}

// longStep is more than the difference of clocks that a sweep allows for.
const longStep = 10 * time.Minute

func newWorld() *world {
	return &world{
		objects: map[string]*thing{},
		seen:    map[string]*thing{},
		version: 100,
		clock:   time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC),
		step:    longStep,
	}
}

func (w *world) next() int {
	w.version++
	w.clock = w.clock.Add(w.step)
	return w.version
}

func (w *world) send(typ, id, members, data string) {
	e, err := consume.Parse(
		fmt.Appendf(nil,
			`{"specversion":"1.0","id":%q,"source":"/kubernetes/prod","type":"dev.kubecdc.%s","subject":"/api/v1/configmaps",
		"time":%q,"datacontenttype":"application/json","dataschema":"x","cluster":"prod","clusteruid":"c1","apiversion":"v1","kind":"ConfigMap",
		"resource":"configmaps",%s,"data":%s}`, id, typ, w.clock.Format(time.RFC3339Nano), members, data))
	if err != nil {
		panic(err)
	}
	w.record = append(w.record, e)
}

func (o *thing) json() string {
	return fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d"}}`,
		o.name, o.uid, o.version)
}

func (w *world) object(typ string, op consume.Op, o *thing, version int, data string) {
	id := fmt.Sprintf("configmaps/%s/%d", o.uid, version)
	if op == consume.Deleted {
		id = "configmaps/" + o.uid + "/d"
	}
	if op == consume.Read {
		id += fmt.Sprintf("/r/s%d", w.snapshots)
	}
	w.send("object."+typ, id,
		fmt.Sprintf(
			`"namespace":"shop","name":%q,"uid":%q,"op":%q,"resourceversion":"%d","sequence":"%020d","partitionkey":"prod/core/configmaps/shop/%[1]s"`,
			o.name, o.uid, op, version, version), fmt.Sprintf(`{"op":%q,"resourceVersion":"%d"%s}`, op, version, data))
}

func (w *world) stream(typ, id, data string) {
	w.send(typ, "configmaps/"+id,
		fmt.Sprintf(`"scope":"configmaps","resourceversion":"%d","partitionkey":"prod/configmaps"`, w.version), data)
}

// change creates or updates an object. The agent records it if it watches; withBefore: with the
// object before.
func (w *world) change(name string, watches, withBefore bool) {
	former := w.objects[name]
	o := &thing{name: name, version: w.next()}
	if former == nil {
		w.uids++
		o.uid = fmt.Sprintf("u%d", w.uids)
	} else {
		o.uid = former.uid
	}
	w.objects[name] = o
	if !watches {
		return
	}
	w.seen[name] = o
	switch {
	case former == nil:
		w.object("created", consume.Created, o, o.version, `,"before":null,"after":`+o.json())
	case withBefore:
		w.object("updated", consume.Updated, o, o.version, `,"before":`+former.json()+`,"after":`+o.json())
	default:
		w.object("updated", consume.Updated, o, o.version, `,"truncated":["before"],"after":`+o.json())
	}
}

// remove deletes an object.
func (w *world) remove(name string, watches, withBefore bool) {
	o := w.objects[name]
	if o == nil {
		return
	}
	delete(w.objects, name)
	version := w.next()
	if !watches {
		return
	}
	delete(w.seen, name)
	data := `,"after":null`
	if withBefore {
		data += `,"before":` + o.json()
	}
	w.object("deleted", consume.Deleted, o, version, data)
}

// restore restores etcd while no agent watches: versions start over at a lower number.
func (w *world) restore() {
	w.restored = true
	w.version = w.version/2 + 1
	for name, o := range w.objects {
		w.objects[name] = &thing{name: o.name, uid: o.uid, version: w.next()}
	}
}

// letter records a change whose event is among the dead letters.
func (w *world) letter(name string, removes bool) {
	o := w.objects[name]
	if o == nil {
		return
	}
	id := ""
	if removes {
		w.remove(name, false, false)
		delete(w.seen, name)
		id = "configmaps/" + o.uid + "/d"
	} else {
		w.change(name, false, false)
		w.seen[name] = w.objects[name]
		id = fmt.Sprintf("configmaps/%s/%d", o.uid, w.version)
	}
	w.stream("gap", fmt.Sprintf("gap/%d/%s", w.version, id),
		fmt.Sprintf(`{"reason":"dead-letter","deadLetter":%q,"recovered":false}`, id))
}

// snapshot records a gap, and a snapshot of all objects. Some of them change or go before its end,
// as during says; letters: the reads of these are among the dead letters. After its start, another
// agent continues it, whose clock is behind.
func (w *world) snapshot(letters map[string]bool, behind time.Duration, during func()) {
	w.next()
	w.snapshots++
	w.stream("gap", fmt.Sprintf("gap/%d", w.version), `{"reason":"checkpoint-lost","recovered":false}`)
	listed, version := maps.Clone(w.objects), w.version
	w.stream("snapshot.started", fmt.Sprintf("s%d/started", w.snapshots),
		fmt.Sprintf(`{"snapshot":"s%d","resourceVersion":"%d","objects":%d}`, w.snapshots, version, len(listed)))
	w.seen = maps.Clone(listed)
	defer func(clock time.Time) { w.clock, w.step = clock.Add(time.Minute), longStep }(w.clock)
	w.clock, w.step = w.clock.Add(-behind), time.Second
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		o := listed[name]
		if letters[name] {
			id := fmt.Sprintf("configmaps/%s/%d/r/s%d", o.uid, o.version, w.snapshots)
			w.stream("gap", "gap/"+id, fmt.Sprintf(`{"reason":"dead-letter","deadLetter":%q,"recovered":false}`, id))
			continue
		}
		w.object("read", consume.Read, o, o.version, fmt.Sprintf(`,"snapshot":"s%d","after":%s`, w.snapshots, o.json()))
	}
	during()
	w.stream("snapshot.completed", fmt.Sprintf("s%d/completed", w.snapshots),
		fmt.Sprintf(`{"snapshot":"s%d","resourceVersion":"%d","objects":%d}`, w.snapshots, version, len(listed)))
}

// want returns the table of the objects that exist.
func (w *world) want() map[string]string {
	rows := map[string]string{}
	for name, o := range w.objects {
		rows["prod/core/configmaps/shop/"+name] = fmt.Sprintf("%s %d", o.uid, o.version)
	}
	return rows
}

// uids returns the uids of a table's rows by key.
func uids(rows map[string]string) map[string]string {
	out := map[string]string{}
	for key, row := range rows {
		uid := ""
		_, _ = fmt.Sscan(row, &uid)
		out[key] = uid
	}
	return out
}

// TestTableIsTheCluster relays drawn records of a cluster, whose agent is away at times, with
// relays that end and begin again a bit earlier. After a snapshot, the table is what exists. After
// all else, it has the objects that package consume's rules say exist.
func TestTableIsTheCluster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, p := newWorld(), &pair{}
		tracker := &consume.Tracker{}
		known := map[string]string{} // by the tracker, uid by key
		sent, late := 0, 0
		relayAll := func() {
			for _, e := range w.record[sent:] {
				v := tracker.Apply(e)
				for _, g := range v.Gone {
					delete(known, "prod/core/configmaps/shop/"+g.Name)
				}
				if key := e.PartitionKey; v.News && e.Data != nil {
					known[key] = e.UID
					if e.Op == consume.Deleted {
						delete(known, key)
					}
				}
			}
			// A late event that comes again to a relay that has just started is a known limit.
			from := max(min(late, sent), sent-rapid.IntRange(0, 6).Draw(t, "again")) // a cursor that was not saved
			if err := p.relayed(&source{records: w.record[from:], first: uint64(from + 1)}); err != nil {
				t.Fatalf("relay: %v", err)
			}
			sent = len(w.record)
			if diff := cmp.Diff(known, uids(p.rows.table(t))); diff != "" && !w.restored {
				t.Fatalf("the table differs from the rules (-rules +table):\n%s", diff)
			}
		}
		name := func() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name") }
		flip := func(what string) bool { return rapid.Bool().Draw(t, what) }
		t.Repeat(map[string]func(*rapid.T){
			"change": func(*rapid.T) { w.change(name(), true, flip("before")) },
			"delete": func(*rapid.T) { w.remove(name(), true, flip("before")) },
			"letter": func(*rapid.T) { w.letter(name(), flip("removes")) },
			"relay":  func(*rapid.T) { relayAll() },
			"late": func(t *rapid.T) {
				if n := len(w.record) - sent; n > 0 {
					late = len(w.record) + 1
					w.record = append(w.record, w.record[sent+rapid.IntRange(0, n-1).Draw(t, "copy")])
				}
			},
			"away": func(*rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "unseen") {
					if flip("removes") {
						w.remove(name(), false, false)
					} else {
						w.change(name(), false, false)
					}
				}
				letters := map[string]bool{}
				if flip("letter") {
					letters[name()] = true
				}
				if flip("restored") {
					w.restore()
				}
				behind := time.Duration(rapid.SampledFrom([]int{0, 2}).Draw(t, "behind")) * time.Minute
				w.snapshot(letters, behind, func() {
					if flip("relay inside") {
						relayAll()
					}
					if flip("change inside") {
						w.change(name(), true, true)
					}
					if flip("delete inside") {
						w.remove(name(), true, true)
					}
				})
				relayAll()
				if len(letters) > 0 {
					return // the state of that object is among the dead letters
				}
				if diff := cmp.Diff(w.want(), p.rows.table(t)); diff != "" {
					t.Fatalf("after a snapshot, the table differs from the cluster (-cluster +table):\n%s", diff)
				}
			},
		})
	})
}
