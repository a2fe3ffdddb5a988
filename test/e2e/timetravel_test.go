package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestGetIsTheListOfItsRevision changes objects, with two snapshots in between, and compares
// `kubecdc get --at rv:N` with the API server's list at N, for random revisions.
func TestGetIsTheListOfItsRevision(t *testing.T) {
	slow(t)
	moments, revisions := size(10, 10, 50), size(300, 1_000, 5_000)
	resources := append([]string{"namespaces"}, truthResources...)
	p := world.SharedPlane(t)
	namespaces := []string{"past-a", "past-b"}
	for _, ns := range namespaces {
		p.NewNamespace(t, ns)
		p.MakeConfigMaps(t, ns, "before", 20)
	}
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [" + strings.Join(resources, ", ") + "]",
	})
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, resources...)
	from := p.Now(t)
	for range 2 {
		count := p.History.Count(truthResources...)
		ws := &world.Writers{API: p.API, Done: func() bool {
			return p.History.Count(truthResources...)-count >= revisions/2
		}}
		for _, ns := range namespaces {
			ws.Run(t, ws.Writer("cm", ns, 15).ConfigMaps, ws.Writer("secret", ns, 15).Secrets,
				ws.Writer("deploy", ns, 8).Deployments,
				ws.Writer("widget", ns, 15).Widgets)
		}
		wait.Settled(t, 2*time.Second, 2*time.Minute, p.History.ChangesIn(namespaces...))
		past(t, "snapshot", "--agent", a.URL)
	}
	until := p.Now(t)
	v := world.ViewOf(s.Started(t, truthResources...))
	v.Until = until
	s.WaitFor(t, oracle.Expect(p.History.Of(truthResources...), v), 20*time.Second)

	rng := rand.New(rand.NewPCG(5, 6))
	objects, exact := 0, 0
	for range moments {
		rev := from + rng.Uint64N(until-from+1)
		for _, resource := range resources {
			got, certainty := getAt(t, bus.URL, resource, rev)
			switch certainty { // an idle resource has older resourceVersions than the others
			case "exact":
				exact++
			case "unknown":
			default:
				oracle.Fail(t, "%s at %d: %s, where nothing was lost", resource, rev, certainty)
			}
			listed := listAt(t, p, resource, rev)
			objects += len(listed)
			compareAt(t, rev, listed, got)
		}
	}
	if objects < moments*40 || exact < moments*len(resources)/2 {
		t.Errorf("%d objects compared, %d exact answers: too few for what was done", objects, exact)
	}
	t.Logf("%d objects compared at %d moments; %d of %d answers are exact", objects, moments, exact,
		moments*len(resources))
}

// past runs a command and returns what it prints.
func past(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := tryPast(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tryPast is past, and returns the error of a command that fails.
func tryPast(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("kubecdc %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return out, err
}

// compareAt compares the objects of a resource that the API server listed at a revision with those
// of the record.
func compareAt(t *testing.T, rev uint64, listed []*oracle.Version, got map[oracle.ObjectKey]*oracle.Version) {
	t.Helper()
	for _, listed := range listed {
		v := got[listed.Key]
		switch {
		case v == nil:
			oracle.Fail(t, "%s revision %d is listed at %d; get does not have it", listed.Key, listed.Rev, rev)
		case v.Rev != listed.Rev || v.UID != listed.UID || v.Digest != listed.Digest:
			oracle.Fail(t, "%s revision %d is listed at %d; get has revision %d, or another object", listed.Key,
				listed.Rev, rev, v.Rev)
		}
		delete(got, listed.Key)
	}
	for key, v := range got {
		oracle.Fail(t, "%s is not listed at %d; get has revision %d", key, rev, v.Rev)
	}
}

// pastScope is the certainty of a scope in the output of get -o json.
type pastScope struct {
	Resource  string      `json:"resource"`
	Certainty string      `json:"certainty"`
	Scope     string      `json:"scope"`
	Ended     *pastEnd    `json:"ended,omitempty"`
	Skipped   int         `json:"skipped"`
	Causes    []pastCause `json:"causes"`
}

// pastCause is what lowers the certainty of a scope.
type pastCause struct {
	Kind   string    `json:"kind"`
	Reason string    `json:"reason"`
	Why    string    `json:"why"`
	From   pastBound `json:"from"`
	To     pastBound `json:"to"`
}

// cause returns the first cause that lowers the certainty. It is zero if there is none.
func (s *pastScope) cause() pastCause {
	if len(s.Causes) == 0 {
		return pastCause{}
	}
	return s.Causes[0]
}

// pastEnd is the end of a scope in the output of get -o json.
type pastEnd struct {
	Reason string `json:"reason"`
}

type pastBound struct {
	Time            time.Time `json:"time"`
	ResourceVersion uint64    `json:"resourceVersion,string"`
	History         int       `json:"history"`
}

// pastAnswer is the output of get -o json.
type pastAnswer struct {
	Items   []json.RawMessage `json:"items"`
	Kubecdc struct {
		Certainty string      `json:"certainty"`
		Scopes    []pastScope `json:"scopes"`
	} `json:"kubecdc"`
}

func ask(t *testing.T, args ...string) pastAnswer {
	t.Helper()
	a, err := tryAsk(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tryAsk is ask, and returns the error of a question that has no answer.
func tryAsk(t *testing.T, args ...string) (a pastAnswer, err error) {
	t.Helper()
	out, err := tryPast(t, append([]string{"get"}, append(args, "-o", "json")...)...)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return a, fmt.Errorf("get %q: %w", args, err)
	}
	return a, nil
}

// getAt returns the objects of a resource at a revision, according to the record, and their
// certainty.
func getAt(t *testing.T, bus, resource string, rev uint64) (map[oracle.ObjectKey]*oracle.Version, string) {
	t.Helper()
	a := ask(t, resource, "--at", fmt.Sprint("rv:", rev), "--bus", bus)
	return a.versions(t, func(map[string]any) string { return resource }), a.Kubecdc.Certainty
}

// versions returns the objects; resource returns that of an object.
func (a *pastAnswer) versions(
	t *testing.T, resource func(object map[string]any) string,
) map[oracle.ObjectKey]*oracle.Version {
	t.Helper()
	out := map[oracle.ObjectKey]*oracle.Version{}
	for _, item := range a.Items {
		object, err := oracle.DecodeObject(item)
		if err != nil {
			t.Fatal(err)
		}
		v, err := oracle.NewVersion(resource(object), 0, object)
		if err != nil {
			t.Fatal(err)
		}
		out[v.Key] = v
	}
	return out
}
