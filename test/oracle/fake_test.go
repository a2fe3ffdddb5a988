package oracle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file fakes the inputs of the oracle: a history from a random number generator, and the
// messages that a correct agent would publish. The tests falsify these and check the oracle's
// faults.

const (
	fakeCluster = "prod.eu-1"
	fakeUID     = "11e0"
	fakeMark    = "planted-b7Qe"
)

// fakeWorld is a history with its objects.
type fakeWorld struct {
	history map[ObjectKey][]*Version
	objects map[uint64][]byte // As served, by revision; a deletion has none.
	rev     uint64
}

func (w *fakeWorld) put(t testing.TB, key ObjectKey, uid string, labels map[string]string, value string) {
	w.rev++
	plural, group := key.Split()
	apiVersion := strings.TrimPrefix(group+"/v1", "/")
	kind := map[string]string{"configmaps": "ConfigMap", "secrets": "Secret", "widgets": "Widget"}[plural]
	obj := map[string]any{
		"apiVersion": apiVersion,
		"kind":       kind,
		"metadata": map[string]any{
			"namespace":       key.Namespace,
			"name":            key.Name,
			"uid":             uid,
			"resourceVersion": FormatRev(w.rev),
			"labels":          labels,
			"annotations":     map[string]string{LastApplied: fakeMark},
			"managedFields": []managed{{
				Manager: "test", Operation: "Update",
				Time: time.Unix(int64(w.rev), 0).UTC().Format(time.RFC3339),
			}},
		},
		"data": map[string]string{"value": value},
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadVersion(key.Resource, 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	w.history[key] = append(w.history[key], v)
	w.objects[w.rev] = raw
}

func (w *fakeWorld) remove(key ObjectKey) {
	w.rev++
	list := w.history[key]
	w.history[key] = append(list, &Version{Key: key, Rev: w.rev, Deleted: true, UID: list[len(list)-1].UID})
}

func (w *fakeWorld) alive(key ObjectKey) *Version {
	list := w.history[key]
	if len(list) == 0 || list[len(list)-1].Deleted {
		return nil
	}
	return list[len(list)-1]
}

// newFakeWorld makes a history over a few names, so that most are deleted and created again.
func newFakeWorld(t testing.TB, revisions int) *fakeWorld {
	t.Helper()
	w := &fakeWorld{history: make(map[ObjectKey][]*Version), objects: make(map[uint64][]byte)}
	rng := rand.New(rand.NewPCG(1, 2))
	var keys []ObjectKey
	for i := range 10 {
		keys = append(keys,
			ObjectKey{Resource: "configmaps", Namespace: "shop", Name: fmt.Sprint("a.", i)},
			ObjectKey{Resource: "secrets", Namespace: "shop", Name: fmt.Sprint("a.", i)},
			ObjectKey{Resource: "widgets.e2e.kubecdc.dev", Namespace: "shop", Name: fmt.Sprint("a.", i)},
		)
	}
	for range revisions {
		key := keys[rng.IntN(len(keys))]
		labels := map[string]string{"team": []string{"payments", "search"}[rng.IntN(2)]}
		value := fmt.Sprint(rng.Uint64())
		if key.Resource == "secrets" {
			value = fakeMark + value
		}
		switch v := w.alive(key); {
		case v == nil:
			w.put(t, key, fmt.Sprintf("uid-%d", w.rev+1), labels, value)
		case rng.IntN(5) == 0:
			w.remove(key)
		default:
			w.put(t, key, v.UID, labels, value)
		}
	}
	return w
}

// view returns the View of an agent that started at rev, with one scope per resource.
func (w *fakeWorld) view(rev uint64) View {
	return View{Snapshot: func(ObjectKey) (Snapshot, bool) { return Snapshot{ID: "s1", Rev: rev}, true }}
}

// stripped returns the object of a revision as the agent would send it.
func (w *fakeWorld) stripped(t testing.TB, rev uint64) []byte {
	obj, err := DecodeObject(w.objects[rev])
	if err != nil {
		t.Fatal(err)
	}
	strip(obj)
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// events returns the bodies that a correct agent sends, in the order of the history.
func (w *fakeWorld) events(t testing.TB, want map[ObjectKey][]Expectation, snapshotRev uint64) []map[string]any {
	t.Helper()
	var all []Expectation
	reads := make(map[string]int)
	for key, list := range want {
		all = append(all, list...)
		reads[key.Resource] += 0
		for _, e := range list {
			if e.Op == Read {
				reads[key.Resource]++
			}
		}
	}
	slices.SortFunc(all, func(a, b Expectation) int { return int(a.Rev) - int(b.Rev) })
	var events []map[string]any
	for resource, n := range reads {
		events = append(events, w.mark(resource, SnapshotStarted, snapshotRev, n))
	}
	completed := false
	complete := func() {
		if completed {
			return
		}
		completed = true
		for resource, n := range reads {
			events = append(events, w.mark(resource, SnapshotCompleted, snapshotRev, n))
		}
	}
	for _, e := range all {
		if e.Op != Read {
			complete()
		}
		events = append(events, w.event(t, e))
	}
	complete()
	return events
}

func (w *fakeWorld) envelope(id, kind, subject string, data map[string]any) map[string]any {
	return map[string]any{
		"specversion": "1.0", "id": id, "source": "/kubernetes/" + fakeCluster, "type": typePrefix + kind,
		"subject": subject, "time": "2026-11-20T15:00:00.123456789Z",
		"datacontenttype": "application/json", "dataschema": "https://kubecdc.dev/schema/object/v1",
		"cluster": fakeCluster, "clusteruid": fakeUID, "data": data,
	}
}

func (w *fakeWorld) mark(resource, kind string, rev uint64, objects int) map[string]any {
	plural, group := ObjectKey{Resource: resource}.Split()
	e := w.envelope(resource+"/s1/"+strings.TrimPrefix(kind, "snapshot."), kind, fakePath(group)+"/"+plural,
		map[string]any{
			"snapshot": "s1", "resourceVersion": FormatRev(rev), "objects": objects,
		})
	e["scope"] = resource
	return e
}

// contentChanged returns the gap event that an agent publishes first after a change of the stripped
// or redacted fields.
func (w *fakeWorld) contentChanged(resource string, from, to uint64) map[string]any {
	plural, group := ObjectKey{Resource: resource}.Split()
	e := w.envelope(fmt.Sprintf("%s/gap/%d-%d/content-changed", resource, from, to), Gap, fakePath(group)+"/"+plural,
		map[string]any{
			"fromResourceVersion": FormatRev(from), "toResourceVersion": FormatRev(to),
			"since": "2026-11-20T15:00:00Z", "reason": ContentChanged, "recovered": true,
		})
	e["scope"] = resource
	return e
}

// reformed returns the gap event that an agent publishes when the API server serves known versions
// in another form.
func (w *fakeWorld) reformed(resource string, from, to uint64) map[string]any {
	e := w.contentChanged(resource, from, to)
	at, _ := time.Parse(time.RFC3339Nano, e["time"].(string))
	e["id"] = fmt.Sprintf("%s/%d", e["id"], at.UnixNano())
	e["data"].(map[string]any)["recovered"] = false
	return e
}

func fakePath(group string) string {
	if group == "" {
		return "/api/v1"
	}
	return "/apis/" + group + "/v1"
}

func (w *fakeWorld) event(t testing.TB, e Expectation) map[string]any {
	plural, group := e.Key.Split()
	rev := FormatRev(e.Rev)
	data := map[string]any{"op": e.Op, "resourceVersion": rev}
	var before, after any
	if e.Prev != nil {
		before = json.RawMessage(w.stripped(t, e.Prev.Rev))
		data["previousResourceVersion"] = FormatRev(e.Prev.Rev)
	}
	if e.Next != nil {
		after = json.RawMessage(w.stripped(t, e.Next.Rev))
	}
	switch e.Op {
	case Created, Deleted:
		data["before"], data["after"] = before, after
	case Updated:
		data["before"], data["after"] = before, after
		// Replaces the root: not minimal, but it applies.
		data["patch"] = []map[string]any{{"op": "replace", "path": "", "value": after}}
	case Read:
		data["after"], data["snapshot"] = after, strings.TrimPrefix(e.ID[strings.LastIndex(e.ID, "/"):], "/")
	case Entered:
		data["before"], data["after"] = before, after
	case Left:
		data["before"] = before
	}
	if e.Op == Created || e.Op == Updated {
		data["changedBy"] = changedBy(e.Prev, e.Next)
	}
	subject := fakePath(group) + "/namespaces/" + e.Key.Namespace + "/" + plural + "/" + e.Key.Name
	kinds := map[string]string{
		Created: "created", Updated: "updated", Deleted: "deleted", Read: "read", Entered: "entered", Left: "left",
	}
	ev := w.envelope(e.ID, "object."+kinds[e.Op], subject, data)
	for k, value := range map[string]string{
		"apiversion": strings.TrimPrefix(group+"/v1", "/"),
		"kind": map[string]string{
			"configmaps": "ConfigMap",
			"secrets":    "Secret",
			"widgets":    "Widget",
		}[plural],
		"resource":        plural,
		"namespace":       e.Key.Namespace,
		"name":            e.Key.Name,
		"uid":             e.UID,
		"op":              e.Op,
		"resourceversion": rev,
		"sequence":        fmt.Sprintf("%020d", e.Rev),
		"partitionkey": fakeCluster + "/" + CoreGroup(group) + "/" + plural + "/" + e.Key.Namespace + "/" +
			e.Key.Name,
	} {
		ev[k] = value
	}
	return ev
}

// messages returns the events as messages on the bus.
func messages(t testing.TB, events []map[string]any) []Message {
	t.Helper()
	list := make([]Message, 0, len(events))
	for i, e := range events {
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text := func(name string) string { s, _ := e[name].(string); return s }
		group, _, grouped := strings.Cut(text("apiversion"), "/")
		if !grouped {
			group = ""
		}
		subject := strings.Join([]string{
			"kubecdc", Escape(fakeCluster), "object", subjectGroup(group), Escape(text("resource")),
			Escape(text("namespace")), Escape(text("name")),
		}, ".")
		if s := text("scope"); s != "" {
			plural, group := ObjectKey{Resource: s}.Split()
			subject = "kubecdc." + Escape(fakeCluster) + ".stream." + subjectGroup(group) + "." + Escape(plural)
			if of := text("type"); !strings.Contains(of, ".snapshot.") && !strings.HasSuffix(of, ".progress") {
				subject = "kubecdc." + Escape(fakeCluster) + ".scope." + subjectGroup(group) + "." + Escape(plural) +
					"." + Escape(s)
			}
		}
		list = append(list, Message{
			Position: uint64(i + 1),
			Subject:  subject,
			Header:   http.Header{"Nats-Msg-Id": {msgID(text("source"), text("id"))}},
			Body:     body,
		})
	}
	return list
}

// readAll reads the messages as the tests do.
func readAll(list []Message) []Record {
	r := &Reader{Cluster: fakeCluster, ClusterUID: fakeUID, Needles: NewNeedles(fakeMark)}
	records := make([]Record, 0, len(list))
	for _, m := range list {
		records = append(records, r.Read(m))
	}
	return records
}
