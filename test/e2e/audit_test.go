package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// auditReport is the JSON of an audit, as far as the test reads it.
type auditReport struct {
	Verdict   string `json:"verdict"`
	Resources []struct{ Resource, Observed string }
	Findings  []struct {
		Since, Until   time.Time
		Resource, Kind string
		Reason         string
		Objects        []string
		What, Advice   string
		Changes        int
	}
	Remarks []struct{ Kind, Resource string }
	Record  struct{ ClusterUID string }
}

func (r *auditReport) kinds() (out []string) {
	for _, f := range r.Findings {
		out = append(out, f.Kind)
	}
	return out
}

// auditSpan asks for an audit of a span.
func auditSpan(t *testing.T, bus string, since, until time.Time, args ...string) (r auditReport, code int) {
	t.Helper()
	args = append([]string{"audit", "--since", stamp(since), "--until", stamp(until), "-o", "json", "--bus", bus},
		args...)
	out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		code = failed.ExitCode()
		if code != 3 {
			t.Fatalf("kubecdc %s: %v: %s", strings.Join(args, " "), err, failed.Stderr)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if isProven := r.Verdict == "proven"; isProven != (code == 0) || isProven != (len(r.Findings) == 0) {
		t.Errorf("verdict %s, exit code %d, findings %+v", r.Verdict, code, r.Findings)
	}
	return r, code
}

// removeStores removes the events that were too large for the bus.
func removeStores(t *testing.T, bus *world.Bus) {
	t.Helper()
	js, err := jetstream.New(bus.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if strings.HasPrefix(name, "OBJ_") {
			removed++
			if err := js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if removed == 0 || names.Err() != nil {
		t.Fatalf("%d stores: %v", removed, names.Err())
	}
}

// TestAudit makes an agent miss things in each way that an audit has to find, one after the other.
// The audit must name each of them, with its span, prove the span before them, and agree with get
// about moments in all of them.
func TestAudit(t *testing.T) {
	slow(t)
	onlyLong(t, "eight minutes")
	notRacing(t)
	t.Parallel()
	const namespace = "audited-span"
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	p.NewNamespace(t, namespace)
	bus := world.StartBus(t)
	via := world.RunProxy(t, world.HostPort(bus.URL))
	cut := proxy.CutAt([]byte("." + oracle.Escape(namespace) + "." + poisoned + " "))
	var healed atomic.Bool
	via.Inspect(func() proxy.Filter {
		passes := cut()
		return func(down bool, piece []byte) bool { return healed.Load() || passes(down, piece) }
	})
	const rule = "  - {resources: [configmaps], namespaces: [" + namespace + "]}\n"
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   &proxied{Bus: bus, via: "nats://" + via.Addr()},
		Watch: rule + "  - {resources: [secrets], namespaces: [" + namespace + "]}",
		Extra: "event: {maxBytes: 65536}\n",
	})
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, "configmaps", "secrets")
	all := world.Collection("configmaps", namespace)
	write := func(name, text string) {
		t.Helper()
		if _, err := p.API.MergePatch(t.Context(), all+"/"+name, obj{"data": obj{"text": text}}); err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time {
		world.Pass(t.Context(), settled)
		at := time.Now()
		world.Pass(t.Context(), settled)
		return at
	}
	again := func(old, replacement string) {
		t.Helper()
		if err := a.Stop(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		a.Reconfigure(t, old, replacement)
		a.Again(t)
		a.Ready(t)
	}
	type injected struct {
		kind, reason string
		from, until  time.Time
	}
	var want []injected
	inject := func(kind, reason string, do func()) {
		t.Helper()
		from := now()
		do()
		want = append(want, injected{kind, reason, from, now()})
	}

	p.MakeConfigMaps(t, namespace, "it", 3)
	since := now()
	for k := range 5 {
		write("it-0", fmt.Sprint("calm ", k))
	}
	if _, err := p.API.Create(t.Context(), world.Collection("secrets", namespace), obj{
		"apiVersion": "v1", "kind": "Secret", "metadata": world.Meta("key"), "stringData": obj{
			"password": world.SecretValue(),
		},
	}); err != nil {
		t.Fatal(err)
	}
	calm := now()
	const minute = 70 * time.Second // after which the agent has sent progress
	world.Pass(t.Context(), minute)

	inject("dead-letter", "", func() {
		if _, err := p.API.Create(t.Context(), all, obj{
			"apiVersion": "v1",
			"kind":       "ConfigMap",
			"metadata":   world.Meta(poisoned),
			"data":       obj{"text": "one"},
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			wait.Eventually(t, time.Minute, func() error {
				if len(s.Dead()) == 0 {
					return errors.New("no dead letter")
				}
				return nil
			})
			cancel()
		}()
		if err := giveUp(ctx, a); err != nil {
			t.Error(err)
		}
		healed.Store(true)
	})
	inject("truncated", "", func() {
		write("it-1", world.Noise(300<<10))
		world.Pass(t.Context(), settled)
		removeStores(t, bus)
	})
	write("it-1", "small again")
	world.Pass(t.Context(), minute)
	inject("interrupted", "", func() {
		again(rule, strings.Replace(rule, "]}", "], operations: [created, deleted]}", 1))
	})
	inject("filtered", "", func() { write("it-2", "withheld") })
	world.Pass(t.Context(), minute)
	again("], operations: [created, deleted]}", "]}")
	world.Pass(t.Context(), 5*time.Second) // its snapshot is complete
	calmer := now()
	write("it-0", "after the filter")
	calmest := now()
	world.Pass(t.Context(), minute)
	inject("gap", "compacted", func() {
		a.Crash()
		write("it-0", "lost")
		write("it-0", "kept")
		if err := p.Compact(t.Context(), int64(p.Now(t))); err != nil {
			t.Fatal(err)
		}
		p.KillAPIServer(0)
		if err := p.StartAPIServer(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		a.Again(t)
		a.Ready(t)
	})
	write("it-0", "after the gap")
	inject("not-selected", "", func() {
		again(rule, strings.Replace(rule, "]}", "], labelSelector: app=web}", 1))
		world.Pass(t.Context(), 5*time.Second)
	})
	until := now()
	t.Logf("since %s, calm %s, calmer %s, calmest %s, until %s", stamp(since), stamp(calm), stamp(calmer),
		stamp(calmest), stamp(until))

	args := []string{"cm", "-n", namespace}
	var whole auditReport
	wait.Eventually(t, final, func() error {
		whole, _ = auditSpan(t, bus.URL, since, until, args...)
		for _, f := range whole.Findings {
			if f.Kind == "after-record" {
				return fmt.Errorf("not final: %+v", f)
			}
		}
		return nil
	})
	for _, f := range whole.Findings {
		t.Logf("%s to %s: %s %s %s: %s; %s", f.Since.Format(time.TimeOnly), f.Until.Format(time.TimeOnly), f.Kind,
			f.Reason, f.Objects, f.What, f.Advice)
	}
	for _, w := range want {
		found := false
		for _, f := range whole.Findings {
			found = found ||
				f.Kind == w.kind && (w.reason == "" || f.Reason == w.reason) && f.Since.Before(w.until) &&
					f.Until.After(w.from)
		}
		if !found {
			oracle.Fail(t, "the audit lacks %s %s from %s to %s", w.kind, w.reason, stamp(w.from), stamp(w.until))
		}
		if _, code := auditSpan(t, bus.URL, w.from, w.until, args...); code != 3 {
			oracle.Fail(t, "%s from %s to %s: exit code %d", w.kind, stamp(w.from), stamp(w.until), code)
		}
	}
	if r, code := auditSpan(t, bus.URL, since, calm, args...); code != 0 {
		t.Errorf("while nothing was missing: %+v", r.Findings)
	}
	// The filter is gone, but no event and no snapshot has shown what it withheld, or the dead
	// letter.
	if r, code := auditSpan(t, bus.URL, calmer, calmest, args...); code != 3 ||
		!slices.Contains(r.kinds(), "filtered") || !slices.Contains(r.kinds(), "dead-letter") {
		oracle.Fail(t, "after the filter: exit code %d, %+v", code, r.Findings)
	}
	secrets, code := auditSpan(t, bus.URL, since, calm, "secrets", "-n", namespace)
	if len(secrets.Remarks) == 0 || secrets.Remarks[0].Kind != "redacted" || code != 0 {
		t.Errorf("a redacted Secret: exit code %d, %+v", code, secrets)
	}

	// get says the same of each moment: what is not selected, or is missing in between, it does not
	// see.
	rng := rand.New(rand.NewPCG(1, 2))
	exact := 0
	for range 60 {
		at := since.Add(time.Duration(rng.Int64N(int64(until.Sub(since)))))
		is := ask(t, "configmaps", "-n", namespace, "--at", stamp(at), "--bus", bus.URL).Kubecdc.Certainty == "exact"
		var around []string
		for _, f := range whole.Findings {
			isOfMoments := f.Kind != "not-selected" && f.Kind != "contradicted"
			if isOfMoments && !at.Before(f.Since) && at.Before(f.Until) {
				around = append(around, f.Kind)
			}
		}
		if is && len(around) > 0 && around[0] != "interrupted" || !is && len(around) == 0 {
			oracle.Fail(t, "at %s: get is exact: %t, the audit has %v", stamp(at), is, around)
		}
		if is {
			exact++
		}
	}
	if exact == 0 || exact == 60 {
		t.Errorf("%d of 60 moments are exact: the test shows too little", exact)
	}
}
