package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// shortWindow is the shortest duplicate window that a stream can have: the stream stores copies
// that the default would hide.
const shortWindow = 100 * time.Millisecond

// candidBus is a bus that does not hide copies.
type candidBus struct{ *world.Bus }

func (b candidBus) Config() string {
	return fmt.Sprintf("nats: {url: %q, stream: {create: true, duplicateWindow: %s}}", b.URL, shortWindow)
}

// election is a group of agents with one leader, one Lease, one checkpoint and one bus, and
// writers.
type election struct {
	*world.Stage
	namespace string // The namespace of the captured objects.
	own       string // The namespace of the Lease and the checkpoint.
	timing    string // More of leaderElection, as in a YAML flow mapping. "" means the default timings.
	binary    string // The binary of the agents that join. "" means that of this tree.
	agents    []*candidate
	late      map[uint64]uint64 // By epoch, the revision up to which records may come late, for JudgeEpochs.
	writers   *world.SteadyWriters
	stop      func()        // Stops the writers.
	away      time.Duration // The longest time that the API server was away: nothing can be published meanwhile.
}

// candidate is an agent that may lead.
type candidate struct {
	*world.Agent
	api  *proxy.Proxy // Between the agent and the API server.
	heal func()       // Undoes refuse.
}

const (
	leaseName      = "agents"
	checkpointName = "agents-checkpoint"
)

// newElection creates the namespaces, with some objects, and the bus. No agent runs yet.
func newElection(t testing.TB, p *world.Plane, name string) *election {
	t.Helper()
	return newElectionRead(t, p, name, p.Reader())
}

// newElectionRead is newElection with a reader of the records.
func newElectionRead(t testing.TB, p *world.Plane, name string, r *oracle.Reader) *election {
	t.Helper()
	e := &election{
		Stage:     &world.Stage{Plane: p, RNG: world.Luck(), Bus: world.StartBusProcess(t), Window: shortWindow},
		namespace: name, own: name + "-own", writers: &world.SteadyWriters{
			Every: 40 * time.Millisecond,
			APIs:  []*world.API{p.API},
		},
		late: make(map[uint64]uint64),
	}
	e.NewNamespace(t, e.namespace)
	e.NewNamespace(t, e.own)
	e.MakeMany(t, e.namespace, "still", 300)
	// The Lease is as a holder leaves it on release. Without a Lease, the first agent waits for a
	// full Lease duration.
	free := obj{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": world.Meta(leaseName), "spec": obj{
			"holderIdentity":       "",
			"leaseDurationSeconds": 1,
		},
	}
	if _, err := p.API.Create(t.Context(), world.Collection("leases.coordination.k8s.io", e.own), free); err != nil {
		t.Fatal(err)
	}
	r.Elected = true
	e.Stream = world.ReadStream(t, e.Bus, r)
	return e
}

// watch returns the selection of the agents. It includes their own Lease, which must not be on the
// bus.
func (e *election) watch() string {
	return fmt.Sprintf(`
  - resources: [configmaps]
    namespaces: [%[1]s]
  - resources: [%[2]s]
    namespaces: [%[1]s]
    labelSelector: team=payments
  - resources: [leases.coordination.k8s.io]
    namespaces: [%[3]s]
`, e.namespace, oracle.Widgets, e.own)
}

// join starts an agent that stands for election.
func (e *election) join(t testing.TB) *candidate {
	t.Helper()
	c := &candidate{api: world.RunProxy(t, world.HostPort(e.APIServerURL(0)))}
	c.Agent = world.StartAgent(t, e.Plane, world.AgentConfig{
		Watch: e.watch(), Bus: candidBus{e.Bus}, Kubeconfig: world.KubeconfigVia(t, e.Plane, c.api), Binary: e.binary,
		Checkpoint: fmt.Sprintf("{configMap: {namespace: %s, name: %s}}", e.own, checkpointName),
		Extra: fmt.Sprintf("leaderElection: {enabled: true, lease: %s, namespace: %s%s}", leaseName, e.own,
			e.timing),
	})
	t.Cleanup(func() { // Before the agent is asked to stop.
		_ = c.Cmd.Process.Signal(syscall.SIGCONT) // Fails only if it has ended.
		c.api.Refuse(false)
		c.api.Hold(false)
	})
	e.agents = append(e.agents, c)
	return c
}

// write runs writers that change objects until stop is called.
func (e *election) write(t testing.TB) {
	t.Helper()
	e.stop = e.writers.Run(t,
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("cm", e.namespace, 25).ConfigMaps
		},
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("other", e.namespace, 25).ConfigMaps
		},
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("third", e.namespace, 25).ConfigMaps
		},
		func(ws *world.Writers) func(context.Context) error { return ws.Writer("w", e.namespace, 25).Labelled },
	)
}

// begin starts n agents, waits until one leads and has sent its snapshots, and starts the writers.
func (e *election) begin(t testing.TB, n int) {
	t.Helper()
	e.join(t)
	e.leader(t)
	e.Stream.Completed(t, "configmaps", oracle.Widgets, "leases.coordination.k8s.io")
	e.write(t)
	for range n - 1 {
		e.standsBy(t, e.join(t))
	}
}

// leads reports whether the agent says that it leads.
func (c *candidate) leads(ctx context.Context) (bool, error) {
	value, err := c.Metric(ctx, "kubecdc_leader")
	return value == 1, err
}

// standby returns nil if the agent reports that it is a ready standby.
func (c *candidate) standby(ctx context.Context) error {
	text, err := c.Get(ctx, "/readyz")
	if err == nil && !strings.Contains(text, "[+] leader: standby") {
		err = fmt.Errorf("it does not stand by: %s", text)
	}
	return err
}

// leader waits until exactly one of the agents reports that it leads.
func (e *election) leader(t testing.TB) (leader *candidate) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		leader = nil
		for i, c := range e.agents {
			if c.Ended() {
				if !c.Killed {
					return fmt.Errorf("agent %d has ended: %w", i, c.Err)
				}
				continue
			}
			switch leads, err := c.leads(t.Context()); {
			case err != nil:
				return err
			case leads && leader != nil:
				return errors.New("two agents say that they lead")
			case leads:
				leader = c
			}
		}
		if leader == nil {
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader
}

func (e *election) standsBy(t testing.TB, c *candidate) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		if c.Ended() {
			t.Fatalf("it has ended, and is to stand by: %v", c.Err)
		}
		return c.standby(t.Context())
	})
}

// deposed waits until a previous leader detects that another agent leads and ends with exit code 1.
// It then restarts the agent, as a kubelet would.
func (e *election) deposed(t testing.TB, c *candidate) {
	t.Helper()
	err := c.Wait(time.Minute)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("the leader that was deposed: %v, want exit code 1", err)
	}
	c.Again(t)
	e.standsBy(t, c)
}

// leaderBut waits until another agent leads.
func (e *election) leaderBut(t testing.TB, was *candidate) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		for _, c := range e.agents {
			if c == was {
				continue
			}
			if leads, err := c.leads(t.Context()); err == nil && leads {
				return nil
			}
		}
		return errors.New("no other agent leads")
	})
}

// fill makes the stream reject records until drain.
func (e *election) fill(t testing.TB) {
	t.Helper()
	e.bound(t, func(s *jetstream.StreamInfo) {
		s.Config.Discard, s.Config.MaxMsgs = jetstream.DiscardNew, int64(s.State.Msgs)
	})
}

func (e *election) drain(t testing.TB) {
	t.Helper()
	e.bound(t, func(s *jetstream.StreamInfo) { s.Config.MaxMsgs = -1 })
}

func (e *election) bound(t testing.TB, change func(*jetstream.StreamInfo)) {
	t.Helper()
	s, err := e.Stream.JS.Stream(t.Context(), world.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo()
	change(info)
	if _, err := e.Stream.JS.UpdateStream(t.Context(), info.Config); err != nil {
		t.Fatal(err)
	}
}

// epoch returns the latest epoch on the bus.
func (e *election) epoch() uint64 {
	var latest uint64
	for _, rec := range e.Stream.All() {
		latest = max(latest, rec.Epoch)
	}
	return latest
}

// after waits for a record with an epoch later than this one.
func (e *election) after(t testing.TB, epoch uint64) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		if now := e.epoch(); now <= epoch {
			return fmt.Errorf("the bus has no record of an epoch later than %d", epoch)
		}
		return nil
	})
}

// caughtUp waits until the bus has a revision that was written after the call. The writers must be
// running.
func (e *election) caughtUp(t testing.TB) {
	t.Helper()
	rev := e.Now(t)
	wait.Eventually(t, time.Minute, func() error {
		for _, rec := range slices.Backward(e.Stream.All()) {
			if rec.Stream == "" && rec.Rev > rev {
				return nil
			}
		}
		return fmt.Errorf("the bus has nothing behind revision %d", rev)
	})
}

// checkpointed waits until the leader has saved its checkpoint, which it does every 5 s. A leader
// that ends before that has only repeated the records of its predecessor, without progress. After
// several of them in a row, the history that they need is gone.
func (e *election) checkpointed(t testing.TB) {
	t.Helper()
	key := oracle.ObjectKey{Resource: "configmaps", Namespace: e.own, Name: checkpointName}
	before := e.History.OfObject(key)
	wait.Eventually(t, time.Minute, func() error {
		if e.History.OfObject(key) == before {
			return errors.New("the checkpoint is not saved")
		}
		return nil
	})
}

// lease returns the path of the Lease.
func (e *election) lease() string {
	return world.Collection("leases.coordination.k8s.io", e.own) + "/" + leaseName
}

// unlease deletes the Lease, as an operator might by mistake.
func (e *election) unlease(t testing.TB) {
	t.Helper()
	if err := e.Plane.API.Remove(t.Context(), e.lease()); err != nil {
		t.Fatal(err)
	}
}

// holder returns the holder that is named in the Lease.
func (e *election) holder(t testing.TB) string {
	t.Helper()
	raw, err := e.Plane.API.Get(t.Context(), e.lease())
	if err != nil {
		t.Fatal(err)
	}
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	if err := json.Unmarshal(raw, &lease); err != nil {
		t.Fatal(err)
	}
	return lease.Spec.HolderIdentity
}

// refuse makes the API server reject a holder's renewals of the Lease, and nothing else. heal
// undoes that.
func (e *election) refuse(t testing.TB, holder string) (heal func()) {
	t.Helper()
	const (
		policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
		bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	)
	name := e.own + ".kubecdc.dev"
	heal = func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(e.Plane.API.Remove(ctx, bindings+"/"+name),
			e.Plane.API.Remove(ctx, policies+"/"+name)); err != nil {
			t.Error(err)
		}
	}
	create := func(collection, kind string, spec obj) {
		_, err := e.Plane.API.Create(t.Context(), collection, obj{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": world.Meta(name), "spec": spec,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	create(policies, "ValidatingAdmissionPolicy", obj{
		"failurePolicy": "Fail",
		"matchConstraints": obj{
			"namespaceSelector": obj{"matchLabels": obj{"kubernetes.io/metadata.name": e.own}},
			"resourceRules": []obj{{
				"apiGroups": []string{"coordination.k8s.io"}, "apiVersions": []string{"v1"}, "resources": []string{
					"leases",
				},
				"operations": []string{"UPDATE"},
			}},
		},
		"validations": []obj{{"expression": fmt.Sprintf("object.spec.holderIdentity != %q", holder)}},
	})
	create(bindings, "ValidatingAdmissionPolicyBinding", obj{"policyName": name, "validationActions": []string{"Deny"}})
	return heal
}

// judgeCheckpoints checks all versions of the checkpoint in etcd's history. The epoch must not
// decrease, and each leader must have saved its own epoch before its first record was on the bus.
func (e *election) judgeCheckpoints(t testing.TB, terms []oracle.Term) []oracle.Fault {
	t.Helper()
	key := oracle.ObjectKey{Resource: "configmaps", Namespace: e.own, Name: checkpointName}
	var faults []oracle.Fault
	var last uint64
	first := make(map[uint64]time.Time) // When it was saved, by epoch.
	for _, v := range e.History.Of("configmaps")[key] {
		if v.Deleted {
			continue
		}
		epoch, saved, err := e.checkpointAt(t.Context(), key, v.Rev)
		if err != nil {
			t.Fatal(err)
		}
		if epoch < last {
			faults = append(faults, oracle.Fault{
				Kind: "checkpoint",
				Key:  key,
				Rev:  v.Rev,
				Text: fmt.Sprintf("its epoch goes from %d to %d", last, epoch),
			})
		}
		last = epoch
		if first[epoch].IsZero() {
			first[epoch] = saved
		}
	}
	for _, term := range terms {
		switch saved := first[term.Epoch]; {
		case saved.IsZero():
			faults = append(faults, oracle.Fault{
				Kind: "checkpoint",
				Key:  key,
				Text: fmt.Sprintf("none of epoch %d was saved", term.Epoch),
			})
		case saved.After(term.First.Stored): // Both by this machine's clock.
			faults = append(faults, oracle.Fault{
				Kind: "checkpoint", Key: key, Position: term.First.Position,
				Text: fmt.Sprintf("that of epoch %d was saved %s after its first record was stored", term.Epoch,
					saved.Sub(term.First.Stored)),
			})
		}
	}
	return faults
}

// checkpointAt reads the checkpoint as it was in etcd at a revision.
func (e *election) checkpointAt(
	ctx context.Context, key oracle.ObjectKey, rev uint64,
) (epoch uint64, saved time.Time, err error) {
	object, err := e.History.Object(ctx, key, rev)
	if err != nil {
		return 0, time.Time{}, err
	}
	data, _ := object["data"].(map[string]any)
	text, _ := data["checkpoint.json"].(string)
	var doc struct {
		Epoch uint64    `json:"epoch"`
		Saved time.Time `json:"saved"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return 0, time.Time{}, fmt.Errorf("%s at %d: %w", key, rev, err)
	}
	return doc.Epoch, doc.Saved, nil
}
