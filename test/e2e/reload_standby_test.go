package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReloadOfAStandby changes the file of the agent that stands by, as a kubelet does that is sooner than the leader's. It takes
// it and goes on standing by. When it leads, it goes on where the leader has left what both select, reads what is new, and says
// farewell of what it does not select.
func TestReloadOfAStandby(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, sharedPlane(t), "reload-standby")
	for i := range 3 {
		secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": meta(fmt.Sprint("secret-", i)), "stringData": obj{"password": "x"}}
		if _, err := e.plane.api.create(t.Context(), collection("secrets", e.namespace), secret); err != nil {
			t.Fatal(err)
		}
	}
	e.begin(t, 2)
	leader := e.leader(t)
	standby := e.agents[0]
	if standby == leader {
		standby = e.agents[1]
	}
	r := &reloaded{agent: standby.agent, watch: e.watch()}
	r.file = r.argv[slices.Index(r.argv, "--config")+1]
	watch := strings.Replace(e.watch(), "[configmaps]", "[configmaps, secrets]", 1)
	watch = strings.Replace(watch, "labelSelector: team=payments", "labelSelector: team=nobody", 1)
	if err := r.swap(watch); err != nil {
		t.Fatal(err)
	}
	if err := r.applied(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := standby.standby(t.Context()); err != nil {
		t.Errorf("it has taken a selection: %v", err)
	}
	e.told(t)
	for _, rec := range e.stream.all() {
		if rec.Scope.Resource == "secrets" || rec.Key.Resource == "secrets" {
			t.Fatalf("the leader's selection has no secrets, and %s %s is on the bus", rec.Stream, rec.Key)
		}
	}

	if err := leader.stop(time.Minute); err != nil {
		t.Fatalf("the leader: %v", err)
	}
	e.leaderBut(t, leader)
	e.stream.completed(t, "secrets")
	e.told(t)
	e.stop()
	settled(t, 2*time.Second, 2*time.Minute, e.history.changesIn(e.namespace))
	until := e.now(t)

	began := make(map[scope]snapshot)
	for sc, snap := range e.stream.started(t, "configmaps") {
		if sc.Resource == "configmaps" {
			began[sc] = snap
		}
	}
	v := viewOf(began)
	v.Until = until
	want := expect(e.history.of("configmaps"), v)
	e.stream.waitFor(t, want, 20*time.Second)
	eventually(t, time.Minute, func() error {
		secrets := 0
		for key := range stateOf(e.stream.all(), "secrets") {
			if key.Namespace == e.namespace {
				secrets++
			}
		}
		if widgets := len(stateOf(e.stream.all(), widgets)); secrets != 3 || widgets > 0 {
			return fmt.Errorf("consumers know of %d secrets, want 3, and of %d widgets, want none", secrets, widgets)
		}
		return nil
	})
	records := e.stream.all()
	ofStay := slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.Key.Resource != "configmaps" && r.Scope.Resource != "configmaps" })
	got := e.stream.judge(want, ofStay, v)
	report(t, e.plane, e.stream, got.Faults)
	if got.Duplicates > 0 || len(got.Gaps) > 0 || got.Inferred > 0 || len(began) != 1 {
		t.Errorf("of what stays: %d records twice, %d gaps, %d inferred deltas, %d scopes with a snapshot", got.Duplicates, len(got.Gaps), got.Inferred, len(began))
	}
	farewell := 0
	for i := range records {
		switch r := &records[i]; {
		case r.Stream != "gap":
		case r.Scope.Resource != widgets || r.Reason != "selection-changed":
			t.Errorf("a gap of %s from %d to %d: %s", r.Scope.Text, r.From, r.To, r.Reason)
		default:
			farewell++
		}
	}
	if farewell == 0 {
		t.Errorf("no gap says that other %s are selected", widgets)
	}
	t.Logf("%d expected, %d on the bus; all: %s", got.Expected, got.Records, countOps(records))
}
