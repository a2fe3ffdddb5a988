package oracle

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// find returns the index of the n-th event (from 0) for which is returns true.
func find(t *testing.T, events []map[string]any, n int, is func(map[string]any) bool) int {
	t.Helper()
	for i, e := range events {
		if is(e) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	t.Fatal("the fake history has no such event")
	return 0
}

func hasOp(op string) func(map[string]any) bool {
	return func(e map[string]any) bool { return e["op"] == op }
}

// clone copies an event, so that a test can falsify it without changing other events that share its
// parts.
func clone(t *testing.T, e map[string]any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	out, err := DecodeObject(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOracleSeesEachFault falsifies correct records in one place and expects a fault of the right
// kind.
func TestOracleSeesEachFault(t *testing.T) {
	const snapshotRev = 100
	w := newFakeWorld(t, 600)
	v := w.view(snapshotRev)
	want := Expect(w.history, v)
	good := w.events(t, want, snapshotRev)

	data := func(e map[string]any) map[string]any { return e["data"].(map[string]any) }
	meta := func(e map[string]any, member string) map[string]any {
		return data(e)[member].(map[string]any)["metadata"].(map[string]any)
	}
	// edit falsifies the fourth event of an op.
	edit := func(op string, falsify func(e map[string]any)) func(*testing.T, []map[string]any) []map[string]any {
		return func(t *testing.T, events []map[string]any) []map[string]any {
			i := find(t, events, 3, hasOp(op))
			events[i] = clone(t, events[i])
			falsify(events[i])
			return events
		}
	}
	for _, tc := range []struct {
		name    string
		falsify func(*testing.T, []map[string]any) []map[string]any
		want    string // The kind of fault; "" for none.
	}{
		{"nothing", func(_ *testing.T, e []map[string]any) []map[string]any { return e }, ""},
		{"duplicate", func(_ *testing.T, e []map[string]any) []map[string]any { return append(e, e[len(e)/2]) }, ""},
		{"dropped update", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 5, hasOp(Updated))
			return slices.Delete(e, i, i+1)
		}, "missing"},
		{"dropped deletion", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 5, hasOp(Deleted))
			return slices.Delete(e, i, i+1)
		}, "missing"},
		{"dropped last record", func(_ *testing.T, e []map[string]any) []map[string]any {
			return e[:len(e)-1]
		}, "missing"},
		{"dropped read", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 0, hasOp(Read))
			return slices.Delete(e, i, i+1)
		}, "snapshot"},
		{"swapped order", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 0, hasOp(Updated))
			j := find(t, e[i+1:], 0, func(x map[string]any) bool { return x["uid"] == e[i]["uid"] }) + i + 1
			e[i], e[j] = e[j], e[i]
			return e
		}, "order"},
		{"unknown to etcd", func(t *testing.T, e []map[string]any) []map[string]any {
			x := clone(t, e[find(t, e, 3, hasOp(Updated))])
			x["resourceversion"], x["sequence"] = "100000", "00000000000000100000"
			x["id"] = fmt.Sprintf("%s/%s/100000", x["resource"], x["uid"])
			return append(e, x)
		}, "unexpected"},
		{"wrong op", edit(Created, func(e map[string]any) {
			e["type"] = typePrefix + "object.updated"
			e["op"] = Updated
			data(e)["op"] = Updated
		}), "op"},
		{"op differs from type", edit(Created, func(e map[string]any) { e["op"] = Updated }), "contract"},
		{"broken chain", edit(Updated, func(e map[string]any) {
			meta(e, "before")["labels"] = map[string]any{"x": "y"}
		}), "chain"},
		{"wrong before", edit(Deleted, func(e map[string]any) {
			meta(e, "before")["labels"] = map[string]any{"x": "y"}
		}), "before"},
		{"wrong after", edit(Updated, func(e map[string]any) {
			meta(e, "after")["labels"] = map[string]any{"x": "y"}
		}), "after"},
		{"after of another revision", edit(Created, func(e map[string]any) {
			meta(e, "after")["resourceVersion"] = "1"
		}), "contract"},
		{"before missing", edit(Updated, func(e map[string]any) { delete(data(e), "before") }), "before"},
		{"before null in a read", edit(Read, func(e map[string]any) { data(e)["before"] = nil }), "before"},
		{"before absent in created", edit(Created, func(e map[string]any) { delete(data(e), "before") }), "before"},
		{"after absent in deleted", edit(Deleted, func(e map[string]any) { delete(data(e), "after") }), "after"},
		{"previousResourceVersion", edit(Updated, func(e map[string]any) {
			data(e)["previousResourceVersion"] = "7"
		}), "previousResourceVersion"},
		{"skipped", edit(Updated, func(e map[string]any) { data(e)["skipped"] = 2 }), "skipped"},
		{"skipped nothing", edit(Updated, func(e map[string]any) { data(e)["skipped"] = 0 }), "contract"},
		{"content-changed that spans revisions", func(t *testing.T, e []map[string]any) []map[string]any {
			return append(e, w.contentChanged("configmaps", 590, 600))
		}, "contract"},
		{"content-changed", func(t *testing.T, e []map[string]any) []map[string]any {
			return append(e, w.contentChanged("configmaps", 600, 600))
		}, ""},
		{"another form", func(t *testing.T, e []map[string]any) []map[string]any {
			return append(e, w.reformed("configmaps", 590, 600))
		}, ""},
		{"another form, with the id of other rules", func(t *testing.T, e []map[string]any) []map[string]any {
			gap := w.reformed("configmaps", 590, 600)
			gap["id"] = w.contentChanged("configmaps", 590, 600)["id"]
			return append(e, gap)
		}, "contract"},
		{"resourceVersion of a deletion", edit(Deleted, func(e map[string]any) {
			e["resourceversion"] = "599"
			e["sequence"] = fmt.Sprintf("%020d", 599)
			data(e)["resourceVersion"] = "599"
		}), "resourceVersion"},
		{"sequence", edit(Updated, func(e map[string]any) { e["sequence"] = "1" }), "contract"},
		{"patch", edit(Updated, func(e map[string]any) { data(e)["patch"] = []any{} }), "contract"},
		{"no patch", edit(Updated, func(e map[string]any) { delete(data(e), "patch") }), "contract"},
		{"changedBy", edit(Updated, func(e map[string]any) { data(e)["changedBy"] = []any{} }), "changedBy"},
		{"inferred without a gap", edit(Updated, func(e map[string]any) { data(e)["inferred"] = true }), "inferred"},
		{"managedFields", edit(Updated, func(e map[string]any) {
			meta(e, "after")["managedFields"] = []any{}
		}), "contract"},
		{"last-applied", edit(Updated, func(e map[string]any) {
			meta(e, "before")["annotations"] = map[string]any{LastApplied: "{}"}
		}), "contract"},
		{"no CloudEvent", edit(Updated, func(e map[string]any) { delete(e, "type") }), "contract"},
		{"attribute that CloudEvents forbids", edit(Updated, func(e map[string]any) {
			e["bad_name"] = "x"
		}), "contract"},
		{"subject", edit(Updated, func(e map[string]any) { e["subject"] = "/api/v1/x" }), "contract"},
		{"time", edit(Updated, func(e map[string]any) { e["time"] = "yesterday" }), "contract"},
		{"partitionkey", edit(Updated, func(e map[string]any) { e["partitionkey"] = "x" }), "contract"},
		{"planted secret", edit(Updated, func(e map[string]any) {
			data(e)["note"] = "x" + fakeMark + "123"
		}), "contract"},
		{"planted secret, encoded", edit(Updated, func(e map[string]any) {
			data(e)["note"] = base64.StdEncoding.EncodeToString([]byte(`{"a":"` + fakeMark + `123"}`))
		}), "contract"},
		{"read behind completed", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 0, hasOp(Read))
			j := find(t, e, 0, func(x map[string]any) bool {
				return x["type"] == typePrefix+SnapshotCompleted && x["scope"] != "x"
			}) + 2
			x := e[i]
			e = slices.Delete(e, i, i+1)
			return slices.Insert(e, j, x)
		}, "snapshot"},
		{"no completed", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 0, func(x map[string]any) bool { return x["type"] == typePrefix+SnapshotCompleted })
			return slices.Delete(e, i, i+1)
		}, "snapshot"},
		{"no started", func(t *testing.T, e []map[string]any) []map[string]any {
			i := find(t, e, 0, func(x map[string]any) bool { return x["type"] == typePrefix+SnapshotStarted })
			return slices.Delete(e, i, i+1)
		}, "snapshot"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := readAll(messages(t, tc.falsify(t, slices.Clone(good))))
			got := Judge(want, records, v)
			faults := append(got.Faults, JudgeSnapshots(records)...)
			kinds := FaultKinds(faults)
			if tc.want == "" && len(faults) > 0 {
				t.Fatalf("faults in a faultless stream: %v, the first: %v", kinds, faults[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
			}
			// Without started, each read of the snapshot is a fault.
			if len(faults) > 5 && tc.name != "no started" {
				t.Errorf("one falsification, %d faults: %v", len(faults), kinds)
			}
			if tc.name == "duplicate" && got.Duplicates != 1 {
				t.Errorf("%d duplicates, want 1", got.Duplicates)
			}
		})
	}
}

// TestOracleSeesSubjectAndHeader checks that the reader reports a wrong subject, header or body.
func TestOracleSeesSubjectAndHeader(t *testing.T) {
	w := newFakeWorld(t, 50)
	v := w.view(10)
	good := messages(t, w.events(t, Expect(w.history, v), 10))
	for name, falsify := range map[string]func(m *Message){
		"subject":          func(m *Message) { m.Subject += "x" },
		"msg id":           func(m *Message) { m.Header = map[string][]string{"Nats-Msg-Id": {"x"}} },
		"secret in header": func(m *Message) { m.Header["X-Note"] = []string{fakeMark} },
		"body":             func(m *Message) { m.Body = m.Body[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			m := good[len(good)/2]
			m.Header = map[string][]string{"Nats-Msg-Id": m.Header["Nats-Msg-Id"]}
			falsify(&m)
			if rec := readAll([]Message{m})[0]; len(rec.Problems) == 0 {
				t.Fatal("nothing found")
			}
		})
	}
}

// TestExpectedUnderSelector checks the expected ops for each way in which an object can relate to a
// selector.
func TestExpectedUnderSelector(t *testing.T) {
	w := &fakeWorld{history: make(map[ObjectKey][]*Version), objects: make(map[uint64][]byte)}
	key := ObjectKey{Resource: "configmaps", Namespace: "shop", Name: "a"}
	in, out := map[string]string{"team": "payments"}, map[string]string{"team": "search"}
	var want []string
	step := func(op string, do func()) {
		do()
		if op != "" {
			want = append(want, fmt.Sprint(op, w.rev))
		}
	}
	put := func(uid string, labels map[string]string) func() { return func() { w.put(t, key, uid, labels, "x") } }
	remove := func() { w.remove(key) }
	step("", put("1", out))
	step("", put("1", out))
	step("e", put("1", in))
	step("u", put("1", in))
	step("l", put("1", out))
	step("", remove)
	step("", put("2", out))
	step("", remove)
	step("c", put("3", in))
	step("d", remove)
	step("c", put("4", in))
	step("l", put("4", out))
	step("e", put("4", in))
	step("d", remove)
	step("", put("5", out))

	v := w.view(0)
	v.Selects = func(labels map[string]string) bool { return labels["team"] == "payments" }
	var got []string
	for _, e := range Expect(w.history, v)[key] {
		got = append(got, fmt.Sprint(e.Op, e.Rev))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("expected events %v, want %v", got, want)
	}
}

// TestOracleJudgesGaps has an agent lose a part of the history and infer the changes from lists.
func TestOracleJudgesGaps(t *testing.T) {
	const from, to = 200, 400
	w := newFakeWorld(t, 600)
	v := w.view(1)
	want := Expect(w.history, v)
	g := func(resource string) map[string]any {
		plural, group := ObjectKey{Resource: resource}.Split()
		e := w.envelope(fmt.Sprintf("%s/gap/%d-%d", resource, from, to), Gap, fakePath(group)+"/"+plural,
			map[string]any{
				"fromResourceVersion": fmt.Sprint(from), "toResourceVersion": fmt.Sprint(to),
				"since": "2026-11-20T15:00:00Z", "reason": "expired", "recovered": false,
			})
		e["scope"] = resource
		return e
	}
	// at returns the version that a list at rev shows.
	at := func(key ObjectKey, rev uint64) *Version {
		var last *Version
		for _, ver := range w.history[key] {
			if ver.Rev <= rev {
				last = ver
			}
		}
		if last == nil || last.Deleted {
			return nil
		}
		return last
	}
	build := func(withGap bool, falsify func(op string, e map[string]any) bool) []Message {
		var events []map[string]any
		infer := func(op string, rev uint64, prev, next *Version) {
			e := Expectation{Op: op, Rev: rev, Prev: prev, Next: next}
			if next == nil {
				e.Key = prev.Key
				e.UID = prev.UID
				e.ID = DeleteID(prev)
			} else {
				e.Key = next.Key
				e.UID = next.UID
				e.ID = ChangeID(next)
			}
			ev := w.event(t, e)
			ev["data"].(map[string]any)["inferred"] = true
			if !falsify(op, ev) {
				events = append(events, ev)
			}
		}
		for _, e := range w.events(t, want, 1) {
			var rev uint64
			if s, ok := e["resourceversion"].(string); ok {
				_, _ = fmt.Sscan(s, &rev)
			}
			if rev <= from {
				events = append(events, e)
			}
		}
		if withGap {
			events = append(events, g("configmaps"), g("secrets"), g("widgets.e2e.kubecdc.dev"))
		}
		for key := range want {
			switch old, now := at(key, from), at(key, to); {
			case old == nil && now == nil:
			case old == nil:
				infer(Created, now.Rev, nil, now)
			case now == nil:
				infer(Deleted, to, old, nil)
			case old.UID != now.UID:
				infer(Deleted, to, old, nil)
				infer(Created, now.Rev, nil, now)
			case old.Rev != now.Rev:
				infer(Updated, now.Rev, old, now)
			}
		}
		for _, e := range w.events(t, want, 1) {
			var rev uint64
			if s, ok := e["resourceversion"].(string); ok {
				_, _ = fmt.Sscan(s, &rev)
			}
			if rev > to {
				events = append(events, e)
			}
		}
		return messages(t, events)
	}
	keep := func(string, map[string]any) bool { return false }
	once := func(op string, falsify func(map[string]any) bool) func(string, map[string]any) bool {
		done := false
		return func(o string, e map[string]any) bool {
			if o != op || done {
				return false
			}
			done = true
			return falsify(e)
		}
	}
	for _, tc := range []struct {
		name    string
		withGap bool
		falsify func(op string, e map[string]any) bool // True drops it.
		want    string
	}{
		{"faultless", true, keep, ""},
		{"no gap event", false, keep, "inferred"},
		{"deletions not inferred", true, func(op string, _ map[string]any) bool {
			return op == Deleted
		}, "final state"},
		{"updates not inferred", true, func(op string, _ map[string]any) bool { return op == Updated }, "final state"},
		{"inferred before wrong", true, once(Updated, func(e map[string]any) bool {
			e["data"].(map[string]any)["before"] = map[string]any{"apiVersion": e["apiversion"], "kind": e["kind"]}
			return false
		}), "chain"},
		{"not marked as inferred", true, func(op string, e map[string]any) bool {
			if op == Updated {
				delete(e["data"].(map[string]any), "inferred")
			}
			return false
		}, "previousResourceVersion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, v := want, v
			if tc.want == "final state" { // Later changes would correct the final state.
				v.Until = to
				want = Expect(w.history, v)
			}
			got := Judge(want, readAll(build(tc.withGap, tc.falsify)), v)
			kinds := FaultKinds(got.Faults)
			if tc.want == "" && len(got.Faults) > 0 {
				t.Fatalf("faults: %v, the first: %v", kinds, got.Faults[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
			}
		})
	}
}

// lastError is a testing.TB that keeps the text of the last error.
type lastError struct {
	testing.TB
	text string
}

func (*lastError) Helper() {}

func (t *lastError) Errorf(format string, args ...any) { t.text = fmt.Sprintf(format, args...) }

// TestMark checks the mark of a verdict, after which .ci/gotest runs no test again.
func TestMark(t *testing.T) {
	var got lastError
	(&Verdict{Inferred: 1}).NoGaps(&got)
	if want := "VERDICT: 0 gaps and 1 inferred deltas, where no history was lost"; got.text != want {
		t.Errorf("got %q, want %q", got.text, want)
	}
}
