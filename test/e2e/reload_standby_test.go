package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestReloadOfAStandby changes the configuration file of the standby before that of the leader, as
// a faster kubelet does. The standby applies it and remains a standby. When it takes the lead, it
// resumes the resources that both configurations select and reads the new ones. It sends a gap and
// "left" records for objects that it no longer selects.
func TestReloadOfAStandby(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, world.SharedPlane(t), "reload-standby")
	for i := range 3 {
		secret := obj{
			"apiVersion": "v1",
			"kind":       "Secret",
			"metadata":   world.Meta(fmt.Sprint("secret-", i)),
			"stringData": obj{"password": "x"},
		}
		if _, err := e.Plane.API.Create(t.Context(), world.Collection("secrets", e.namespace), secret); err != nil {
			t.Fatal(err)
		}
	}
	e.begin(t, 2)
	leader := e.leader(t)
	standby := e.agents[0]
	if standby == leader {
		standby = e.agents[1]
	}
	r := &reloaded{Agent: standby.Agent, watch: e.watch()}
	r.file = r.Argv[slices.Index(r.Argv, "--config")+1]
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
	e.caughtUp(t)
	for _, rec := range e.Stream.All() {
		if rec.Scope.Resource == "secrets" || rec.Key.Resource == "secrets" {
			oracle.Fail(t, "the leader's selection has no secrets, and %s %s is on the bus", rec.Stream, rec.Key)
			return
		}
	}

	if err := leader.Stop(time.Minute); err != nil {
		t.Fatalf("the leader: %v", err)
	}
	e.leaderBut(t, leader)
	e.Stream.Completed(t, "secrets")
	e.caughtUp(t)
	e.stop()
	wait.Settled(t, 2*time.Second, 2*time.Minute, e.History.ChangesIn(e.namespace))
	until := e.Now(t)

	began := make(map[oracle.Scope]oracle.Snapshot)
	for sc, snap := range e.Stream.Started(t, "configmaps") {
		if sc.Resource == "configmaps" {
			began[sc] = snap
		}
	}
	v := world.ViewOf(began)
	v.Until = until
	want := oracle.Expect(e.History.Of("configmaps"), v)
	e.Stream.WaitFor(t, want, 20*time.Second)
	wait.Eventually(t, time.Minute, func() error {
		secrets := 0
		for key := range stateOf(e.Stream.All(), "secrets") {
			if key.Namespace == e.namespace {
				secrets++
			}
		}
		if widgets := len(stateOf(e.Stream.All(), oracle.Widgets)); secrets != 3 || widgets > 0 {
			return fmt.Errorf("consumers know of %d secrets, want 3, and of %d widgets, want none", secrets, widgets)
		}
		return nil
	})
	records := e.Stream.All()
	ofStay := slices.DeleteFunc(slices.Clone(records), func(r oracle.Record) bool {
		return r.Key.Resource != "configmaps" && r.Scope.Resource != "configmaps"
	})
	got := e.Stream.Judge(want, ofStay, v)
	world.Report(t, e.Plane, e.Stream, got.Faults)
	if got.Duplicates > 0 || len(got.Gaps) > 0 || got.Inferred > 0 || len(began) != 1 {
		oracle.Fail(t, "of what stays: %d records twice, %d gaps, %d inferred deltas, %d scopes with a snapshot",
			got.Duplicates, len(got.Gaps), got.Inferred, len(began))
	}
	farewell := 0
	for i := range records {
		switch r := &records[i]; {
		case r.Stream != "gap":
		case r.Scope.Resource != oracle.Widgets || r.Reason != "selection-changed":
			oracle.Fail(t, "a gap of %s from %d to %d: %s", r.Scope.Text, r.From, r.To, r.Reason)
		default:
			farewell++
		}
	}
	if farewell == 0 {
		oracle.Fail(t, "no gap says that other %s are selected", oracle.Widgets)
	}
	t.Logf("%d expected, %d on the bus; all: %s", got.Expected, got.Records, countOps(records))
}
