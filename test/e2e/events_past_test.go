package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// listedMeta is the metadata that TestEventsInThePast reads.
type listedMeta struct {
	Name            string
	UID             string
	ResourceVersion string
	OwnerReferences []struct{ UID string }
}

// listedEvent is an Event as the API server lists it in the core group.
type listedEvent struct {
	Metadata       listedMeta
	InvolvedObject struct{ UID string }
	Type           string
	Reason         string
	Message        string
	Count          int
	Series         struct{ Count int }
}

// pastEvents is the output of history --with-events -o json.
type pastEvents struct {
	Versions []struct{ Op string }
	Events   []pastEvent
	Kubecdc  pastCertainty
}

type pastEvent struct {
	Time                      time.Time
	UID, ResourceVersion      string
	Type, Reason, Message, By string
	Count                     int
	Regarding                 struct{ Resource, Name, UID string }
}

// pastCertainty says how certain such an answer is.
type pastCertainty struct {
	Certainty string
	Scopes    []struct {
		Resource, Certainty string
		Causes              []struct{ Kind string }
	}
}

// list lists the objects of a resource.
func list[T any](t *testing.T, p *world.Plane, resource, namespace string) []T {
	t.Helper()
	raw, err := p.API.Get(t.Context(), world.Collection(resource, namespace))
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Items []T }
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// ownedBy returns the uids of an object and of all ReplicaSets and Pods that it owns, as the API
// server lists them.
func ownedBy(t *testing.T, p *world.Plane, namespace, uid string) map[string]bool {
	t.Helper()
	owned := map[string]bool{uid: true}
	for _, resource := range []string{"replicasets.apps", "pods"} {
		for _, o := range list[struct{ Metadata listedMeta }](t, p, resource, namespace) {
			for _, owner := range o.Metadata.OwnerReferences {
				if owned[owner.UID] {
					owned[o.Metadata.UID] = true
				}
			}
		}
	}
	return owned
}

// TestEventsInThePast asks for the Events of a Deployment and of the objects that it owns.
// Controllers make some of them, the test the others, in both API groups. The evidence is the API
// server's LIST of Events: those about the Deployment, and about the objects that it owns by the
// LISTs of ReplicaSets and Pods.
func TestEventsInThePast(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	const namespace = "events-past"
	p.NewNamespace(t, namespace)
	type run struct {
		name, watch string
		bus         *world.Bus
	}
	runs := []*run{{name: "core", watch: "events."}, {name: "group", watch: "events.events.k8s.io"}, {
		name:  "none",
		watch: "configmaps",
	}}
	for _, r := range runs {
		r.bus = world.StartBus(t)
		a := world.StartAgent(t, p, world.AgentConfig{Bus: r.bus, Watch: fmt.Sprintf(`
  - resources: [deployments.apps, replicasets.apps, pods, %s]
    namespaces: [%s, default]
`, r.watch, namespace)})
		a.Ready(t)
	}
	create := func(resource string, o obj) (meta listedMeta) {
		raw, err := p.API.Create(t.Context(), world.Collection(resource, namespace), o)
		if err != nil {
			t.Fatal(err)
		}
		var created struct{ Metadata listedMeta }
		if err := json.Unmarshal(raw, &created); err != nil {
			t.Fatal(err)
		}
		return created.Metadata
	}
	uids := map[string]string{}
	for _, name := range []string{"web", "api"} {
		labels := obj{"app": name}
		uids[name] = create("deployments.apps", obj{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": obj{"name": name},
			"spec": obj{"replicas": 2, "selector": obj{"matchLabels": labels}, "template": obj{
				"metadata": obj{"labels": labels}, "spec": obj{"containers": []obj{{"name": "app", "image": "app:1"}}},
			}},
		}).UID
	}
	var pods []listedMeta
	wait.Eventually(t, time.Minute, func() error {
		pods = nil
		for _, o := range list[struct{ Metadata listedMeta }](t, p, "pods", namespace) {
			pods = append(pods, o.Metadata)
		}
		reasons := map[string]int{}
		for _, e := range list[listedEvent](t, p, "events", namespace) {
			reasons[e.Reason]++
		}
		if len(pods) != 4 || reasons["ScalingReplicaSet"] != 2 || reasons["SuccessfulCreate"] != 4 {
			return fmt.Errorf("%d pods, Events: %v", len(pods), reasons)
		}
		return nil
	})

	// A scheduler and a kubelet would report these of each Pod.
	for i, pod := range pods {
		about := obj{"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.Name, "uid": pod.UID}
		scheduling := obj{
			"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": obj{
				"name": fmt.Sprint(pod.Name, ".1"),
			}, "regarding": about,
			"reason": "FailedScheduling", "note": "0/1 nodes are available", "type": "Warning", "action": "Scheduling",
			"eventTime":           time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
			"reportingController": "default-scheduler",
			"reportingInstance":   "s-1",
		}
		create("events.events.k8s.io", scheduling)
		path := "/apis/events.k8s.io/v1/namespaces/" + namespace + "/events/" + pod.Name + ".1"
		series := obj{"series": obj{
			"count":            2 + i,
			"lastObservedTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
		}}
		if _, err := p.API.MergePatch(t.Context(), path, series); err != nil {
			t.Fatal(err)
		}
		now := time.Now().UTC().Format(time.RFC3339)
		create("events", obj{
			"apiVersion": "v1", "kind": "Event", "metadata": obj{
				"name": fmt.Sprint(pod.Name, ".2"),
			}, "involvedObject": about,
			"reason": "BackOff", "message": "Back-off restarting failed container", "type": "Warning", "source": obj{
				"component": "kubelet",
			},
			"firstTimestamp": now, "lastTimestamp": now, "count": 1,
		})
		for _, patch := range []obj{{"metadata": obj{"labels": obj{"a": "b"}}}, {"count": 4}, {"count": 9}} {
			if _, err := p.API.MergePatch(t.Context(), world.Collection("events", namespace)+"/"+pod.Name+".2",
				patch); err != nil {
				t.Fatal(err)
			}
		}
	}
	listed := list[listedEvent](t, p, "events", namespace)
	owned := ownedBy(t, p, namespace, uids["web"])
	if len(owned) != 4 {
		t.Fatalf("the Deployment owns %v", owned)
	}
	end := p.Now(t)

	// The API server deletes an Event after an hour. The Pods are gone before that.
	for _, e := range listed {
		if err := p.API.Remove(t.Context(), world.Collection("events", namespace)+"/"+e.Metadata.Name); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		if err := p.API.Remove(t.Context(),
			world.Collection("pods", namespace)+"/"+pod.Name+"?gracePeriodSeconds=0"); !world.Tolerable(err) {
			t.Fatal(err)
		}
	}
	p.MakeConfigMaps(t, namespace, "after", 1)

	want := map[string]string{} // The last step of each Event, by its uid.
	steps := map[string]int{}
	for _, e := range listed {
		if owned[e.InvolvedObject.UID] {
			count := max(e.Count, e.Series.Count, 1)
			want[e.Metadata.UID] = fmt.Sprint(e.Type, " ", e.Reason, " ", e.Message, " ", count)
			// and one at least of the controllers
			steps[e.Reason] += map[string]int{"BackOff": 3, "FailedScheduling": 2}[e.Reason]
		}
	}
	if len(want) < 7 { // 1 of the Deployment, 2 of the ReplicaSet, 4 of the Pods
		t.Fatalf("%d Events are evidence for too little: %v", len(want), want)
	}
	for _, r := range runs[:2] {
		t.Run(r.name, func(t *testing.T) {
			a := askEventsUpTo(t, r.bus.URL, namespace, end, len(want))
			got := map[string]string{}
			times := map[string]int{}
			seen := time.Time{}
			for _, e := range a.Events {
				got[e.UID] = fmt.Sprint(e.Type, " ", e.Reason, " ", e.Message, " ", e.Count)
				times[e.Reason]++
				if e.Regarding.UID == "" || !owned[e.Regarding.UID] {
					oracle.Fail(t, "an Event about something else: %+v", e)
				}
				if e.Time.Before(seen.Add(-time.Second)) { // Two watches, one after the other on the bus.
					t.Errorf("%v comes after %v", e.Time, seen)
				}
				seen = e.Time
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				oracle.Fail(t, "-listed +shown\n%s", diff)
			}
			for reason, n := range steps {
				if n > 0 && times[reason] != n {
					oracle.Fail(t, "%s: %d steps, want %d", reason, times[reason], n)
				}
			}
			if len(a.Versions) == 0 {
				t.Error("no versions of the Deployment")
			}
			text := string(
				past(t, "history", "deploy/web", "-n", namespace, "--with-events", "-o", "table", "--bus", r.bus.URL))
			if n := strings.Count(text, " Event "); n < len(a.Events) || strings.Contains(text, "deleted  events") {
				t.Errorf("%d lines of Events, want %d:\n%s", n, len(a.Events), text)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		args := []string{
			"history", "deploy/web", "-n", namespace, "--with-events", "--exact", "-o", "json", "--bus",
			runs[2].bus.URL,
		}
		cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), args...)
		var said strings.Builder
		cmd.Stderr = &said
		out, _ := cmd.Output()
		var a pastEvents
		if err := json.Unmarshal(out, &a); err != nil {
			t.Fatalf("%v: %s%s", err, out, &said)
		}
		isSaid := strings.Contains(said.String(), "Events were not captured")
		if cmd.ProcessState.ExitCode() != 3 || !isSaid || len(a.Events) > 0 ||
			!slices.Contains(a.Kubecdc.causesOf("events"), "no-snapshot") {
			t.Errorf("exit code %d, %+v: %s", cmd.ProcessState.ExitCode(), a.Kubecdc, &said)
		}
	})
	t.Run("cost", func(t *testing.T) { logEventCost(t, p, runs[0].bus) })
}

// causesOf returns the causes that lower the certainty of a resource, sorted.
func (c *pastCertainty) causesOf(resource string) []string {
	kinds := map[string]bool{}
	for _, s := range c.Scopes {
		for _, cause := range s.Causes {
			if s.Resource == resource || strings.HasPrefix(s.Resource, resource+".") {
				kinds[cause.Kind] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// askEventsUpTo asks for the history of the Deployment web until the record has as many Events up
// to a revision. It returns these.
func askEventsUpTo(t *testing.T, bus, namespace string, rev uint64, events int) (a pastEvents) {
	t.Helper()
	wait.Eventually(t, 2*time.Minute, func() error {
		a = pastEvents{}
		out, err := tryPast(t, "history", "deploy/web", "-n", namespace, "--with-events", "-o", "json", "--bus", bus)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &a); err != nil {
			return err
		}
		uids := map[string]bool{}
		a.Events = slices.DeleteFunc(a.Events, func(e pastEvent) bool {
			version, err := strconv.ParseUint(e.ResourceVersion, 10, 64)
			isLater := err == nil && version > rev
			if !isLater {
				uids[e.UID] = true
			}
			return isLater
		})
		if unplaced := slices.Contains(a.Kubecdc.causesOf("events"), "unplaced"); len(uids) < events || unplaced {
			return fmt.Errorf("%d Events: %+v", len(uids), a.Kubecdc)
		}
		return nil
	})
	return a
}

// logEventCost logs how many records Events cost from their creation to their deletion, and how
// large these are.
func logEventCost(t *testing.T, p *world.Plane, bus *world.Bus) {
	t.Helper()
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, "events")
	var records, sizes map[string]int
	var events map[string]bool
	wait.Eventually(t, time.Minute, func() error {
		records = map[string]int{}
		sizes = map[string]int{}
		events = map[string]bool{}
		for _, r := range s.All() {
			if r.Key.Resource == "events" && r.Op != "" {
				records[r.Op]++
				sizes[r.Op] += r.Size
				events[r.UID] = true
			}
		}
		for _, op := range []string{"c", "u", "d"} {
			if records[op] == 0 {
				return fmt.Errorf("no records of operation %s", op)
			}
		}
		return nil
	})
	for op, n := range records {
		t.Logf("%d Events, operation %s: %d records of %d bytes", len(events), op, n, sizes[op]/n)
	}
}
