package consumers_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// cluster is the true state of a cluster and, separately, an agent that reports it. An object also
// changes while the agent does not observe it.
type cluster struct {
	t      testing.TB
	rng    *rand.Rand
	name   string
	uid    string
	scopes []*scope

	history uint32 // restores of etcd
	rv      uint64
	uids    int
	objects map[string]*fact // by uid
	backup  *cluster         // the state to restore etcd from

	encoder  *encode.Encoder // of the run; nil: not made yet
	subjects *subject.Template
	run      agentRun
	reached  map[string]consume.Reached // by scope: what progress says
	clock    int64
	told     map[string]*fact // by uid: the objects as last sent by the agent
	records  []record
}

// fact is one version of an object. Immutable.
type fact struct {
	scope *scope
	ref   *object.Ref
	rv    uint64
	body  *object.Object
	json  string
	shown bool // matches the selector of its scope
}

// scope is the scope of one informer.
type scope struct {
	resource   *object.Resource
	name       string
	namespaces []string
	selects    bool // by labels: objects enter and leave
}

func scopes() []*scope {
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	deployments := &object.Resource{
		Group:      "apps",
		Version:    "v1",
		Name:       "deployments",
		Kind:       "Deployment",
		Namespaced: true,
	}
	widgets := &object.Resource{
		Group:      "example.com",
		Version:    "v1beta1",
		Name:       "widgets",
		Kind:       "Widget",
		Namespaced: true,
	}
	configMaps := &object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	roles := &object.Resource{
		Group:   "rbac.authorization.k8s.io",
		Version: "v1",
		Name:    "clusterroles",
		Kind:    "ClusterRole",
	}
	return []*scope{
		{resource: deployments, name: "deployments.apps", namespaces: []string{"shop", "bank"}},
		// Two informers of one resource: a sweep of one must not remove the other's objects.
		{resource: pods, name: "pods/shop", namespaces: []string{"shop"}},
		{resource: pods, name: "pods/team-?,!team-x", namespaces: []string{"team-a", "team-b"}},
		{resource: pods, name: "pods/team-x", namespaces: []string{"team-x"}},
		{
			resource:   widgets,
			name:       "widgets.example.com?labelSelector=team in (a, b),app.kubernetes.io/name=x",
			namespaces: []string{"shop"},
			selects:    true,
		},
		// The objects of several rules.
		{resource: configMaps, name: "configmaps?any=shop?labelSelector=team=payments|team-*", namespaces: []string{
			"shop", "team-a",
		}, selects: true},
		{resource: roles, name: "clusterroles.rbac.authorization.k8s.io/*,!kube-*", namespaces: []string{""}},
	}
}

func newCluster(t testing.TB, name string, rng *rand.Rand) *cluster {
	t.Helper()
	subjects, err := subject.New("", name)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{
		t:        t,
		rng:      rng,
		name:     name,
		uid:      "uid-of-" + name,
		scopes:   scopes(),
		rv:       90,
		objects:  map[string]*fact{},
		told:     map[string]*fact{},
		subjects: subjects,
		clock:    1_795_186_800e9, // 2026-11-20T15:00:00Z
		run:      agentRun{writer: "writer-of-" + name, observes: map[string]bool{}},
		reached:  map[string]consume.Reached{},
	}
}

// of returns the objects of a scope in a fixed order; shown: only those that match its selector.
func of(facts map[string]*fact, s *scope, shown bool) []*fact {
	var found []*fact
	for _, f := range facts {
		if f.scope == s && (f.shown || !shown) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b *fact) int { return cmp.Compare(a.ref.UID, b.ref.UID) })
	return found
}

// version creates the next version of an object, or its first one.
func (c *cluster) version(s *scope, ref *object.Ref, shown bool) *fact {
	// from 90 on: the numbers get longer, so that their order as strings is not their order as
	// numbers
	c.rv += 1 + c.rng.Uint64N(9)
	if ref == nil {
		c.uids++
		namespace := s.namespaces[c.rng.IntN(len(s.namespaces))]
		name := fmt.Sprintf("n%d", c.rng.IntN(6)) // names are reused, with other uids
		for _, f := range of(c.objects, s, false) {
			if f.ref.Namespace() == namespace && f.ref.Name() == name {
				name = fmt.Sprintf("system:%s-%d", name, c.uids)
			}
		}
		ref = object.NewRef(s.resource, namespace, name, fmt.Sprintf("%s-%04d", s.resource.Name, c.uids))
	}
	meta := map[string]any{"name": ref.Name(), "uid": ref.UID, "resourceVersion": fmt.Sprint(c.rv)}
	if ref.Namespace() != "" {
		meta["namespace"] = ref.Namespace()
	}
	doc, err := json.Marshal(map[string]any{
		"kind": s.resource.Kind, "apiVersion": s.resource.APIVersion(), "metadata": meta,
		"spec": map[string]any{"value": c.rng.IntN(1000), "text": "Zürich \u2028 \"quoted\" 😀"},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	f := &fact{scope: s, ref: ref, rv: c.rv, shown: shown, json: string(doc), body: object.New(ref, c.rv, 0, nil, doc)}
	c.objects[ref.UID] = f
	return f
}

// change makes a change and returns the delta that a watching agent gets, or nil if it gets none.
func (c *cluster) change(s *scope) *object.Delta {
	all := of(c.objects, s, false)
	if len(all) == 0 || len(all) < 12 && c.rng.IntN(4) == 0 {
		f := c.version(s, nil, !s.selects || c.rng.IntN(2) == 0)
		if !f.shown {
			return nil
		}
		return &object.Delta{Op: object.Created, Ref: f.ref, After: f.body, ResourceVersion: f.rv}
	}
	before := all[c.rng.IntN(len(all))]
	if c.rng.IntN(4) == 0 {
		delete(c.objects, before.ref.UID)
		c.rv++
		if !before.shown {
			return nil
		}
		return &object.Delta{
			Op:              object.Deleted,
			Ref:             before.ref,
			Before:          before.body,
			ResourceVersion: c.rv,
			Previous:        before.rv,
		}
	}
	shown := before.shown
	if s.selects && c.rng.IntN(3) == 0 {
		shown = !shown
	}
	f := c.version(s, before.ref, shown)
	d := &object.Delta{
		Op:              object.Updated,
		Ref:             f.ref,
		Before:          before.body,
		After:           f.body,
		ResourceVersion: f.rv,
		Previous:        before.rv,
	}
	switch {
	case !before.shown && !shown:
		return nil
	case !before.shown:
		d.Op = object.Entered
	case !shown:
		d.Op, d.After = object.Left, nil
	}
	return d
}

// send appends the delta's record to the stream, and records what the agent has sent.
func (c *cluster) send(d *object.Delta) {
	if d == nil {
		return
	}
	c.clock += 1e6
	d.Observed, d.History = c.clock, c.history
	var ev encode.Event
	if c.encoder == nil {
		c.encoder = encode.New(encode.Options{
			Cluster:    c.name,
			ClusterUID: c.uid,
			Before:     true,
			Patch:      true,
			Writer:     c.run.writer,
			Run:        c.run.String(),
			Epoch:      c.run.epoch,
		})
	}
	if err := c.encoder.Encode(&ev, d); err != nil {
		c.t.Fatal(err)
	}
	to := c.subjects.Append
	if d.Report != nil {
		to = func(dst []byte, _ *object.Delta) []byte { return c.subjects.AppendProgress(dst, c.run.writer) }
	}
	c.records = append(c.records, record{
		Subject: string(to(nil, d)),
		Header:  nats.Header{"content-type": {ev.ContentType}},
		Body:    slices.Clone(ev.Body),
	})
	switch {
	case d.Stream != nil, d.Report != nil:
	case d.Op == object.Deleted || d.Op == object.Left:
		delete(c.told, d.Ref.UID)
	default:
		if f := c.objects[d.Ref.UID]; f != nil && f.rv == d.ResourceVersion {
			c.told[d.Ref.UID] = f
		}
	}
}

func (c *cluster) stream(s *scope, ev object.StreamEvent) {
	ev.Resource = s.resource
	ev.Scope = s.name
	ev.History = c.history
	if ev.Kind == object.ScopeStarted || ev.Kind == object.SnapshotStarted {
		ev.Observation = &object.Observation{Rules: []byte("[{}]")}
	}
	c.send(&object.Delta{Stream: &ev})
	c.noteObservation(ev.Kind, s.name)
}

// relist is the relist of an agent that lost a part of history: it announces the gap, and infers
// changes.
func (c *cluster) relist(s *scope, from uint64, reason object.GapReason) {
	c.stream(s, object.StreamEvent{Kind: object.Gap, From: from, To: c.rv, Reason: reason})
	at := c.rv
	for _, f := range of(c.told, s, true) {
		now := c.objects[f.ref.UID]
		switch {
		case now == nil:
			c.send(&object.Delta{
				Op:              object.Deleted,
				Inferred:        true,
				Ref:             f.ref,
				Before:          f.body,
				ResourceVersion: at,
				Previous:        f.rv,
			})
		case !now.shown:
			c.send(&object.Delta{
				Op:              object.Left,
				Inferred:        true,
				Ref:             f.ref,
				Before:          f.body,
				ResourceVersion: now.rv,
				Previous:        f.rv,
			})
		case now.rv != f.rv:
			c.send(&object.Delta{
				Op:              object.Updated,
				Inferred:        true,
				Ref:             f.ref,
				Before:          f.body,
				After:           now.body,
				ResourceVersion: now.rv,
				Previous:        f.rv,
			})
		}
	}
	for _, f := range of(c.objects, s, true) {
		if c.told[f.ref.UID] == nil {
			c.send(&object.Delta{Op: object.Created, Inferred: true, Ref: f.ref, After: f.body, ResourceVersion: f.rv})
		}
	}
}

// snapshot is the snapshot of an agent without stored state, which reads all objects while changes
// continue. The agent may be restarted and resume. If whole is false, it may end before it
// completes.
func (c *cluster) snapshot(s *scope, whole bool) {
	for _, f := range of(c.told, s, false) {
		delete(c.told, f.ref.UID)
	}
	id, at := fmt.Sprintf("20261120T%06dZ-%d", c.clock/1e6%1e6, c.rv), c.rv
	due := of(c.objects, s, true)
	total := len(due)
	started := object.StreamEvent{Kind: object.SnapshotStarted, Snapshot: id, ResourceVersion: at, Objects: total}
	c.stream(s, started)
	c.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	var done []*fact
	read := func(i int) {
		f := due[i]
		due, done = slices.Delete(due, i, i+1), append(done, f)
		c.send(&object.Delta{Op: object.Read, Ref: f.ref, After: f.body, ResourceVersion: f.rv, Snapshot: id})
	}
	for len(due) > 0 {
		if !whole && c.rng.IntN(total) == 0 {
			return
		}
		if c.rng.IntN(4) == 0 {
			c.late()
		}
		if c.rng.IntN(12) == 0 {
			c.restart()
			started.Continued = true
			c.stream(s, started)
			for _, f := range done {
				if c.objects[f.ref.UID] == f && c.rng.IntN(2) == 0 {
					due = append(due, f)
				}
			}
			done = nil
		}
		if c.rng.IntN(3) > 0 {
			read(0)
			continue
		}
		// For an object whose read is due, the read is sent before the change.
		if d := c.change(s); d != nil {
			if i := slices.IndexFunc(due, func(f *fact) bool { return f.ref.UID == d.Ref.UID }); i >= 0 {
				read(i)
			}
			c.send(d)
		}
	}
	if whole {
		c.stream(s, object.StreamEvent{
			Kind:            object.SnapshotCompleted,
			Snapshot:        id,
			ResourceVersion: at,
			Objects:         total,
		})
	}
}

// part is a snapshot on demand of one namespace of a scope, by an agent that has read all objects.
func (c *cluster) part(s *scope) {
	namespace := s.namespaces[c.rng.IntN(len(s.namespaces))]
	if namespace == "" {
		return
	}
	part := *s
	part.name = s.resource.String() + "/" + namespace
	if s.selects {
		_, selectors, _ := strings.Cut(s.name, "?")
		part.name += "?" + selectors
	}
	at := object.StreamEvent{
		Kind:            object.SnapshotStarted,
		Snapshot:        fmt.Sprintf("part-%d-%d", c.clock, c.rv),
		ResourceVersion: c.rv,
	}
	c.stream(&part, at)
	for _, f := range of(c.told, s, true) {
		if f.ref.Namespace() == namespace {
			c.send(&object.Delta{
				Op:              object.Read,
				Ref:             f.ref,
				After:           f.body,
				ResourceVersion: f.rv,
				Snapshot:        at.Snapshot,
			})
			at.Objects++
		}
	}
	at.Kind = object.SnapshotCompleted
	c.stream(&part, at)
}

// reform makes the API server serve the objects of a scope in another form, at their versions. The
// agent announces that.
func (c *cluster) reform(s *scope) {
	form := c.rng.IntN(1000)
	for _, f := range of(c.objects, s, false) {
		var doc map[string]any
		if err := json.Unmarshal([]byte(f.json), &doc); err != nil {
			c.t.Fatal(err)
		}
		doc["spec"].(map[string]any)["form"] = form
		now := *f
		text, err := json.Marshal(doc)
		if err != nil {
			c.t.Fatal(err)
		}
		now.json, now.body = string(text), object.New(f.ref, f.rv, 0, nil, text)
		c.objects[f.ref.UID] = &now
	}
	c.stream(s, object.StreamEvent{Kind: object.Gap, From: c.rv, To: c.rv, Reason: object.ContentChanged})
}

// save keeps a backup of etcd.
func (c *cluster) save() {
	c.backup = &cluster{rv: c.rv, objects: map[string]*fact{}}
	for uid, f := range c.objects {
		c.backup.objects[uid] = f
	}
}

// restore restores etcd from its backup. resourceVersions are reused with other content.
func (c *cluster) restore() {
	if c.backup == nil || c.backup.rv == c.rv {
		return
	}
	from := c.rv
	c.rv = c.backup.rv
	c.objects = c.backup.objects
	c.backup = nil
	c.history++
	for _, s := range c.scopes {
		c.stream(s, object.StreamEvent{Kind: object.Gap, From: from, To: c.rv, Reason: object.Rewound})
		c.snapshot(s, true)
	}
}

// copies sends the last records again, in order, like an agent that died before it saved its
// position.
func (c *cluster) copies() {
	n := c.rng.IntN(min(40, len(c.records)) + 1)
	c.records = append(c.records, c.records[len(c.records)-n:]...)
}

// late sends any earlier record again.
func (c *cluster) late() {
	if n := len(c.records); n > 0 {
		c.records = append(c.records, c.records[c.rng.IntN(n)])
	}
}

// oneScope is a cluster in which only Deployments are watched.
func oneScope(t testing.TB) (*cluster, *scope) {
	t.Helper()
	c := newCluster(t, "prod-eu-1", rand.New(rand.NewPCG(2, 2)))
	return c, c.scopes[0]
}

// life returns the records of an object's whole life.
func (c *cluster) life(s *scope, name string) (created, updated, deleted record) {
	c.uids++
	ref := object.NewRef(s.resource, "shop", name, fmt.Sprintf("uid-%04d", c.uids))
	one := c.version(s, ref, true)
	c.send(&object.Delta{Op: object.Created, Ref: ref, After: one.body, ResourceVersion: one.rv})
	two := c.version(s, ref, true)
	c.send(&object.Delta{
		Op:              object.Updated,
		Ref:             ref,
		Before:          one.body,
		After:           two.body,
		ResourceVersion: two.rv,
		Previous:        one.rv,
	})
	c.rv++
	delete(c.objects, ref.UID)
	c.send(&object.Delta{Op: object.Deleted, Ref: ref, Before: two.body, ResourceVersion: c.rv, Previous: two.rv})
	n := len(c.records)
	return c.records[n-3], c.records[n-2], c.records[n-1]
}
