package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	// spanBefore and spanAfter are how much longer an interruption may be than the fault. It begins
	// with the last frame, and bookmarks come each minute. It ends with the first proof.
	spanBefore = 65 * time.Second
	spanAfter  = 5 * time.Second
	// spanBlocked is how long after a fault the changes that the path sends at once may block a
	// watch.
	spanBlocked = 20 * time.Second
	// unseen is the longest delay of an observation that is no interruption: a process that stands
	// still for two seconds reports that.
	unseen = 2 * time.Second
	// calm is how long nobody writes before and after a list. Within it, all writes are observed.
	calm = unseen + 200*time.Millisecond
	// cached is how long the watch cache of an API server keeps a change at least. A path that
	// holds changes back for longer may make a resumed watch fail with 410 Expired.
	cached = 70 * time.Second
)

// progressResources are the resources of the tests of progress. Each is a scope.
var progressResources = []string{"configmaps", "secrets", oracle.Widgets}

// observed is an agent whose objects change in bursts. A second client lists them in between.
type observed struct {
	*world.Stage
	namespace string
	begun     time.Time // Before the agent was started.
	captured  time.Time // After its first snapshots.
	bursts    *bursts
	stop      func() []listing

	faults map[string][]injected // By resource, in order.
}

// injected is a fault that interrupted the observation of a scope, in the agent's time.
type injected struct {
	why         string
	from, until time.Time
	rev         uint64 // The revision of etcd at its end.
}

// listing is what the API server had at a time of the test. Nothing changed shortly before and
// after it.
type listing struct {
	resource string
	at       time.Time
	table    map[oracle.ObjectKey]uint64
}

// observe starts an agent and the bursts.
func observe(t *testing.T, namespace string, c world.AgentConfig) *observed {
	t.Helper()
	s := world.StageOn(t, world.SharedPlane(t), world.Luck())
	s.Delay = unseen
	s.NewNamespace(t, namespace)
	b := &bursts{plane: s.Plane, namespace: namespace}
	o := &observed{Stage: s, namespace: namespace, bursts: b, faults: make(map[string][]injected)}
	if err := b.burst(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Watch = fmt.Sprintf("  - resources: [configmaps, secrets, %s]\n    namespaces: [%s]", oracle.Widgets, namespace)
	o.begun = time.Now()
	s.Begin(t, c)
	s.Stream.Completed(t, progressResources...)
	o.captured = time.Now()
	o.stop = b.run(t)
	return o
}

// bursts changes objects of each resource, and lists them after each burst.
type bursts struct {
	plane     *world.Plane
	namespace string
	n         int
	listings  []listing
	listed    atomic.Int64 // How often all resources were listed.
}

// run makes bursts until stop is called, which returns the lists.
func (b *bursts) run(t *testing.T) (stop func() []listing) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		for ctx.Err() == nil && err == nil {
			if err = b.burst(context.WithoutCancel(ctx)); err != nil {
				return
			}
			world.Pass(ctx, calm)
			if ctx.Err() != nil {
				return
			}
			if err = b.list(context.WithoutCancel(ctx)); err != nil {
				return
			}
			world.Pass(ctx, 300*time.Millisecond)
		}
	})
	once := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(once)
	return func() []listing {
		t.Helper()
		once()
		if err == nil { // It shows the agent that nothing changed before.
			err = b.burst(t.Context())
		}
		if err != nil {
			t.Fatalf("bursts: %v", err)
		}
		return b.listings
	}
}

// burst updates two objects of each resource, and creates or deletes a third one.
func (b *bursts) burst(ctx context.Context) error {
	b.n++
	text := fmt.Sprint("burst ", b.n)
	for _, resource := range progressResources {
		all := world.Collection(resource, b.namespace)
		content := obj{"data": obj{"text": text}}
		head := obj{"apiVersion": "v1", "kind": "ConfigMap"}
		switch resource {
		case "secrets":
			content = obj{"data": obj{"text": base64.StdEncoding.EncodeToString([]byte(text))}}
			head["kind"] = "Secret"
		case oracle.Widgets:
			content = obj{"spec": obj{"text": text}}
			head = obj{"apiVersion": oracle.WidgetsGroup + "/v1", "kind": "Widget"}
		}
		for i := range 3 {
			name := fmt.Sprint("it-", i)
			if i == 2 && b.n%2 == 0 {
				if err := b.plane.API.Remove(ctx, all+"/"+name); err != nil {
					return err
				}
				continue
			}
			_, err := b.plane.API.MergePatch(ctx, all+"/"+name, content)
			if apierrors.IsNotFound(err) {
				o := maps.Clone(content)
				maps.Copy(o, head)
				o["metadata"] = world.Meta(name)
				_, err = b.plane.API.Create(ctx, all, o)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// list lists each resource. Nothing changes meanwhile.
func (b *bursts) list(ctx context.Context) error {
	for _, resource := range progressResources {
		before := time.Now()
		raw, err := b.plane.API.Get(ctx, world.Collection(resource, b.namespace))
		if err != nil {
			return err
		}
		at := before.Add(time.Since(before) / 2)
		l := listing{resource: resource, at: at, table: make(map[oracle.ObjectKey]uint64)}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			v, err := oracle.ReadVersion(resource, 0, item)
			if err != nil {
				return err
			}
			l.table[v.Key] = v.Rev
		}
		b.listings = append(b.listings, l)
	}
	b.listed.Add(1)
	return nil
}

// awaitLists waits until each resource was listed more often by a number. How long that takes
// depends on the machine.
func (o *observed) awaitLists(t *testing.T, more int64) {
	t.Helper()
	want := o.bursts.listed.Load() + more
	wait.Eventually(t, 3*time.Minute, func() error {
		if listed := o.bursts.listed.Load(); listed < want {
			return fmt.Errorf("listed %d times, want %d", listed, want)
		}
		return nil
	})
}

// scopeOf returns the name of the scope of a resource, which the agent has chosen.
func (o *observed) scopeOf(t *testing.T, resource string) oracle.Scope {
	t.Helper()
	for sc := range o.Stream.Started(t, resource) {
		if sc.Resource == resource {
			return sc
		}
	}
	t.Fatalf("no scope of %s", resource)
	return oracle.Scope{}
}

// inject begins a fault of some resources, ends it after a time, and notes it.
func (o *observed) inject(
	t *testing.T, why string, begin func(), lasts time.Duration, end func(), resources ...string,
) {
	t.Helper()
	begin()
	x := injected{why: why, from: time.Now()}
	world.Pass(t.Context(), lasts)
	x.until = time.Now()
	end()
	o.note(t, x, resources...)
}

// note notes a fault that has just ended.
func (o *observed) note(t *testing.T, x injected, resources ...string) {
	t.Helper()
	x.rev = o.Now(t)
	for _, resource := range resources {
		o.faults[resource] = append(o.faults[resource], x)
	}
}

// wall returns the agent's time at a time of the test's.
func (o *observed) wall(at time.Time) time.Time {
	if o.Clock == nil {
		return at
	}
	return o.Clock(at)
}

// awaitReport waits for a progress of the current run of the agent.
func (o *observed) awaitReport(t *testing.T, what string, is func(*oracle.Record) bool) *oracle.Record {
	t.Helper()
	var found *oracle.Record
	wait.Eventually(t, 90*time.Second, func() error {
		all := o.Stream.All()
		for i := range all {
			if all[i].Report != nil && is(&all[i]) {
				found = &all[i]
				return nil
			}
		}
		return errors.New("no progress: " + what)
	})
	return found
}

// awaitHealth waits until the status says a health of the scope of the widgets. All others are
// well.
func (o *observed) awaitHealth(t *testing.T, within time.Duration, health, reason string) {
	t.Helper()
	wait.Eventually(t, within, func() error {
		text, err := o.Agent.Get(t.Context(), "/status")
		if err != nil {
			return err
		}
		var status struct {
			Ready  bool
			Scopes []struct{ Resource, Health, Reason, Error string }
		}
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			return err
		}
		for _, s := range status.Scopes {
			isIt := s.Resource == oracle.Widgets
			switch {
			case isIt && (s.Health != health || s.Reason != reason || (s.Error == "") != (reason == "")):
				return fmt.Errorf("%+v", s)
			case !isIt && s.Health != "ok":
				return fmt.Errorf("%+v", s)
			}
		}
		if status.Ready != (health == "ok") || len(status.Scopes) != len(progressResources) {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}
