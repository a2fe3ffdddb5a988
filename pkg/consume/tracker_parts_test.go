package consume_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Agents on nodes and the central agent share a stream. None of them affects objects that another
// one observes.
func TestTrackerOfParts(t *testing.T) {
	const (
		unbound = " scope=pods?fieldSelector=spec.nodeName="
		n1      = " scope=pods?fieldSelector=spec.nodeName=n1"
		n2      = " scope=pods?fieldSelector=spec.nodeName=n2"
	)
	for name, lines := range map[string]string{
		"left first": `
			c web/1 @10` + unbound + ` => news
			l web/1 @12` + unbound + ` => news
			e web/1 @12` + n1 + ` => news
			l web/1 @12` + unbound + ` => -
			e web/1 @12` + n1 + ` => -
			u web/1 @13` + n1 + ` => news`,
		"entered first": `
			c web/1 @10` + unbound + ` => news
			e web/1 @12` + n1 + ` => news
			u web/1 @13` + n1 + ` => news
			l web/1 @12` + unbound + ` => -
			e web/1 @12` + n1 + ` => -`,
		"entered before it was created": `
			e web/1 @12` + n1 + ` => news
			c web/1 @10` + unbound + ` => -
			l web/1 @12` + unbound + ` => -
			d web/1 @14` + n1 + ` => news
			l web/1 @12` + unbound + ` => -
			e web/1 @12` + n1 + ` => -`,
		"left late, and inferred": `
			c web/1 @10` + unbound + ` => news
			e web/1 @12` + n1 + ` => news
			l web/1 @30` + unbound + ` => -
			u web/1 @14` + n1 + ` => news`,
		"a snapshot of one node": `
			c web/1 @10` + n1 + ` => news
			c api/2 @11` + n2 + ` => news
			c job/3 @12` + unbound + ` => news
			started S1 @20` + n1 + ` => news
			completed S1 @20` + n1 + ` => gone web/1
			u api/2 @15` + n2 + ` => news
			e db/4 @18` + n2 + ` => news
			started S2 @30` + n2 + ` => news
			r db/4 @18 S2` + n2 + ` => -
			completed S2 @30` + n2 + ` => gone api/2
			l job/3 @19` + unbound + ` => news`,
		"swept by the central agent, entered late": `
			c web/1 @10` + unbound + ` => news
			started S1 @20` + unbound + ` => news
			completed S1 @20` + unbound + ` => gone web/1
			e web/1 @12` + n1 + ` => news
			c web/1 @10` + unbound + ` => -`,
		"moved to another node": `
			c web/1 @10` + n1 + ` => news
			c web/2 @15` + n2 + ` => gone web/1
			d web/1 @14` + n1 + ` => -
			c web/1 @10` + n1 + ` => -`,
		"read by its node as it was bound": `
			c web/1 @10` + unbound + ` => news
			l web/1 @12` + unbound + ` => news
			started S1 @20` + n1 + ` => news
			r web/1 @12 S1` + n1 + ` => news
			completed S1 @20` + n1 + ` => news`,
		"of one agent before": `
			c web/1 @10 => news
			c api/2 @11 => news
			started S1 @20` + n1 + ` => news
			r web/1 @10 S1` + n1 + ` => -
			completed S1 @20` + n1 + ` => gone api/2
			started S2 @21` + n2 + ` => news
			r api/2 @11 S2` + n2 + ` => news
			completed S2 @21` + n2 + ` => news`,
		"of one agent again": `
			c web/1 @10` + n1 + ` => news
			c api/2 @11` + n2 + ` => news
			started S1 @20 => news
			r web/1 @10 S1 => -
			completed S1 @20 => gone api/2`,
	} {
		t.Run(name, func(t *testing.T) { script(t, &consume.Tracker{}, lines) })
	}
}

// A scope is no longer selected, and selected again. Objects that did not change meanwhile are read
// at a version below that of their left events.
func TestTrackerOfAScopeThatIsSelectedAgain(t *testing.T) {
	for name, lines := range map[string]string{
		"an object that has not changed": `
			c web/1 @10 => news
			l web/1 @30 => news
			started S1 @40 => news
			r web/1 @10 S1 => news
			l web/1 @30 => -
			completed S1 @40 => news
			r web/1 @10 S1 => -
			u web/1 @41 => news
			l web/1 @42 => news`,
		"one that is deleted then": `
			c web/1 @10 => news
			l web/1 @30 => news
			started S1 @40 => news
			r web/1 @10 S1 => news
			completed S1 @40 => news
			d web/1 @10 => news
			r web/1 @10 S1 => -`,
		"its form may be another one": `
			c web/1 @10 => news
			l web/1 @30 => news
			started S1 @40 => news
			r web/1 @10 S1 => news
			completed S1 @40 => news
			gap content-changed @45 => news
			started S2 @50 => news
			r web/1 @10 S2 => news
			completed S2 @50 => news`,
		"a late read of the snapshot under way": `
			started S1 @20 => news
			r web/1 @10 S1 => news
			l web/1 @30 => news
			r web/1 @10 S1 => -
			completed S1 @20 => news`,
		"a read without a snapshot": `
			c web/1 @10 => news
			l web/1 @30 => news
			r web/1 @10 S1 => -`,
	} {
		t.Run(name, func(t *testing.T) { script(t, &consume.Tracker{}, lines) })
	}
}

// A Tracker reads the events of the agents on two nodes and of the central agent, with late
// duplicates and snapshots of each of the three. Pods are created, bound, changed and deleted. The
// events of one agent arrive in order, those of different agents in any order. In the end the
// Tracker holds exactly the Pods that exist.
func TestTrackerOfPartsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &nodesWorld{
			t:       t,
			pods:    map[string]*nodePod{},
			queued:  map[string][]*consume.Event{},
			tracker: &consume.Tracker{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(*rapid.T) { w.create() },
			"bind":   func(*rapid.T) { w.bind() },
			"change": func(*rapid.T) { w.change(false) },
			"delete": func(*rapid.T) { w.change(true) },
			"snapshot": func(t *rapid.T) {
				w.snapshot(rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"))
			},
			"send":  func(t *rapid.T) { w.send() },
			"again": func(t *rapid.T) { w.again() },
			"save": func(t *rapid.T) {
				saved, err := json.Marshal(w.tracker)
				if err != nil {
					t.Fatal(err)
				}
				w.tracker = &consume.Tracker{}
				if err := json.Unmarshal(saved, w.tracker); err != nil {
					t.Fatal(err)
				}
			},
		})
		for len(w.queued) > 0 {
			w.send()
		}
		var want []consume.Object
		for _, p := range w.pods {
			want = append(want, consume.Object{
				Source:    "/kubernetes/x",
				Resource:  "pods",
				Namespace: "shop",
				Name:      p.name,
				UID:       p.uid,
			})
		}
		slices.SortFunc(want, byName)
		if diff := gocmp.Diff(want, slices.SortedFunc(w.tracker.All(), byName)); diff != "" {
			t.Fatalf("-there is +known\n%s", diff)
		}
	})
}

type nodePod struct {
	name, uid, node string
	rv              uint64
}

type nodesWorld struct {
	t       *rapid.T
	rv      uint64
	ids     int
	pods    map[string]*nodePod // by name
	queued  map[string][]*consume.Event
	log     []*consume.Event
	tracker *consume.Tracker
}

// say queues an event of a node's agent; "" is the central agent.
func (w *nodesWorld) say(node string, e *consume.Event) {
	w.ids++
	e.Source = "/kubernetes/x"
	e.APIVersion = "v1"
	e.Resource = "pods"
	e.Scope = "pods?fieldSelector=spec.nodeName=" + node
	if e.ID == "" {
		e.ID = fmt.Sprint(w.ids)
	}
	w.queued[node] = append(w.queued[node], e)
}

func (w *nodesWorld) tell(node string, op consume.Op, p *nodePod, snapshot string) {
	w.say(node, &consume.Event{
		Op: op, Namespace: "shop", Name: p.name, UID: p.uid, Sequence: fmt.Sprintf("%020d", p.rv),
		Data: &consume.Data{Op: op, Snapshot: snapshot},
	})
}

func (w *nodesWorld) create() {
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.t, "name")
	if w.pods[name] != nil {
		return
	}
	w.rv++
	p := &nodePod{
		name: name,
		uid:  fmt.Sprint("uid-", w.rv),
		node: rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(w.t, "node"),
		rv:   w.rv,
	}
	w.pods[name] = p
	w.tell(p.node, consume.Created, p, "")
}

func (w *nodesWorld) bind() {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if p := w.pods[name]; p.node == "" {
			w.rv++
			p.rv = w.rv
			w.tell("", consume.Left, p, "")
			p.node = rapid.SampledFrom([]string{"n1", "n2"}).Draw(w.t, "node")
			w.tell(p.node, consume.Entered, p, "")
			return
		}
	}
}

func (w *nodesWorld) change(remove bool) {
	if len(w.pods) == 0 {
		return
	}
	p := w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(w.t, "pod")]
	w.rv++
	p.rv = w.rv
	op := consume.Updated
	if remove {
		op = consume.Deleted
		delete(w.pods, p.name)
	}
	w.tell(p.node, op, p, "")
}

// snapshot is a complete snapshot of a scope; events queued before it are sent first.
func (w *nodesWorld) snapshot(node string) {
	w.rv++
	id := fmt.Sprint("S", w.rv)
	marker := func(typ consume.EventType) {
		w.say(node, &consume.Event{
			Type: typ, ID: "pods?" + node + "/" + id + string(typ), Sequence: fmt.Sprintf("%020d", w.rv),
			Stream: &consume.Stream{Snapshot: id, ResourceVersion: fmt.Sprint(w.rv)},
		})
	}
	marker(consume.TypeSnapshotStarted)
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if p := w.pods[name]; p.node == node {
			w.tell(node, consume.Read, p, id)
		}
	}
	marker(consume.TypeSnapshotCompleted)
}

func (w *nodesWorld) send() {
	if len(w.queued) == 0 {
		return
	}
	node := rapid.SampledFrom(slices.Sorted(maps.Keys(w.queued))).Draw(w.t, "agent")
	e := w.queued[node][0]
	w.queued[node] = w.queued[node][1:]
	if len(w.queued[node]) == 0 {
		delete(w.queued, node)
	}
	e.Time = noon.Add(time.Duration(len(w.log)) * time.Second)
	w.log = append(w.log, e)
	w.tracker.Apply(e)
}

// again delivers a late duplicate.
func (w *nodesWorld) again() {
	if len(w.log) > 0 {
		w.tracker.Apply(w.log[rapid.IntRange(0, len(w.log)-1).Draw(w.t, "copy of")])
	}
}

// Two agents observe a scope. One continues a snapshot that is older than that of the other, and
// whose first start the Tracker has not seen. The versions do not begin again.
func TestTrackerOfAnOlderSnapshotThatIsContinued(t *testing.T) {
	t.Parallel()
	var tracker consume.Tracker
	stream := func(typ consume.EventType, id string, rv int, continued bool) {
		tracker.Apply(&consume.Event{
			ID:              id + string(typ),
			Type:            typ,
			Source:          "x",
			APIVersion:      "v1",
			Resource:        "pods",
			Scope:           "pods",
			Time:            time.Unix(int64(1000+rv), 0),
			ResourceVersion: fmt.Sprint(rv),
			Sequence:        fmt.Sprintf("%020d", rv),
			Stream:          &consume.Stream{Snapshot: id, ResourceVersion: fmt.Sprint(rv), Continued: continued},
		})
	}
	object := func(op consume.Op, rv int) bool {
		return tracker.Apply(&consume.Event{
			ID:              fmt.Sprint("pods/u/", rv),
			Type:            "dev.kubecdc.object.updated",
			Source:          "x",
			APIVersion:      "v1",
			Resource:        "pods",
			Namespace:       "shop",
			Name:            "web",
			UID:             "u",
			Op:              op,
			Time:            time.Unix(1500, 0),
			ResourceVersion: fmt.Sprint(rv),
			Sequence:        fmt.Sprintf("%020d", rv),
			Data:            &consume.Data{Op: op},
		}).News
	}
	stream(consume.TypeSnapshotStarted, "S2", 28, false)
	object(consume.Read, 20)
	object(consume.Updated, 30)
	stream(consume.TypeSnapshotCompleted, "S2", 28, false)
	e := &consume.Event{
		ID:              "S1",
		Type:            consume.TypeSnapshotStarted,
		Source:          "x",
		APIVersion:      "v1",
		Resource:        "pods",
		Scope:           "pods",
		Time:            time.Unix(2000, 0),
		ResourceVersion: "21",
		Sequence:        fmt.Sprintf("%020d", 21),
		Stream: &consume.Stream{
			Snapshot:        "S1",
			ResourceVersion: "21",
			Continued:       true,
		},
	}
	tracker.Apply(e)
	if object(consume.Updated, 25) {
		t.Error("a late event is news: the versions have begun again")
	}
	stream(consume.TypeSnapshotCompleted, "S1", 21, false)
	if tracker.Len() != 1 {
		t.Errorf("%d objects, want the one that was read", tracker.Len())
	}
}

// A reader begins inside a snapshot, after its first start: it sees a change of an object, and then
// the start of a later run. The agent does not read the object again, because the bus has its
// change. So the end of the snapshot does not show that it is gone.
func TestTrackerThatBeginsInsideASnapshot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, continued bool
		want             int
	}{
		"the first start was seen": {true, true, 2},
		"it was not":               {false, true, 2},
		"the bus lacks it, so the snapshot begins anew": {false, false, 1},
	} {
		var tracker consume.Tracker
		apply := func(typ string, uid string, rv int, s *consume.Stream) {
			e := &consume.Event{
				ID:              fmt.Sprint(typ, uid, rv),
				Type:            consume.EventType(consume.TypePrefix + typ),
				Source:          "x",
				APIVersion:      "v1",
				Resource:        "pods",
				ResourceVersion: fmt.Sprint(rv),
				Sequence:        fmt.Sprintf("%020d", rv),
				Time:            time.Unix(int64(1000+rv), 0),
				Stream:          s,
			}
			if s != nil {
				e.Scope = "pods"
			} else {
				e.Namespace = "shop"
				e.Name = uid
				e.UID = uid
				e.Op = consume.Updated
				e.Data = &consume.Data{Op: consume.Updated}
			}
			tracker.Apply(e)
		}
		if c.first {
			apply("snapshot.started", "", 20, &consume.Stream{Snapshot: "S1", ResourceVersion: "20"})
		}
		apply("object.updated", "a", 30, nil)
		apply("snapshot.started", "", 20, &consume.Stream{
			Snapshot:        "S1",
			ResourceVersion: "20",
			Continued:       c.continued,
		})
		apply("object.updated", "b", 31, nil)
		apply("snapshot.completed", "", 20, &consume.Stream{Snapshot: "S1", ResourceVersion: "20"})
		if got := tracker.Len(); got != c.want {
			t.Errorf("%s: %d objects, want %d", name, got, c.want)
		}
	}
}
