package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestEventsInAnEtcdOfTheirOwn runs an API server that keeps Events in another etcd. The progress
// of the agent says so, and that all other resources share one. An answer at a resourceVersion has
// the quiet ones among them, and no Events.
func TestEventsInAnEtcdOfTheirOwn(t *testing.T) {
	slow(t)
	t.Parallel()
	other := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	other.MakeConfigMaps(t, "default", "other", 200) // otherwise both etcds have similar versions
	p := world.StartPlane(t, controlplane.Options{
		NoControllerManager: true, APIServerArgs: []string{"--etcd-servers-overrides=/events#" + other.EtcdEndpoint()},
	})
	const namespace = "etcds"
	p.NewNamespace(t, namespace)
	p.MakeConfigMaps(t, namespace, "cm", 3)
	for path, o := range map[string]obj{
		world.Collection("events", namespace): {
			"apiVersion":     "v1",
			"kind":           "Event",
			"metadata":       world.Meta("event"),
			"involvedObject": obj{"namespace": namespace},
		},
		"/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets": {
			"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": world.Meta("pdb"), "spec": obj{
				"selector": obj{},
			},
		},
	} {
		if _, err := p.API.Create(t.Context(), path, o); err != nil {
			t.Fatal(err)
		}
	}
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: `
  - resources: [configmaps, events, poddisruptionbudgets.policy, leases.coordination.k8s.io]
`})
	s := world.ReadStream(t, bus, p.Reader())
	a.Ready(t)
	early := fmt.Sprint("rv:", p.Now(t))
	wait.Eventually(t, time.Minute, func() error {
		got := ask(t, "poddisruptionbudgets", "--at", early, "--bus", bus.URL)
		if got.Kubecdc.Certainty != "unknown" || len(got.Items) != 1 {
			return fmt.Errorf("before anything is known: %s, with %d objects", got.Kubecdc.Certainty, len(got.Items))
		}
		return nil
	})
	known := map[string]string{}
	version, said := "", 0
	wait.Eventually(t, 8*time.Minute, func() error {
		all := s.All()
		for ; said < len(all); said++ {
			report := all[said].Report
			if report == nil {
				continue
			}
			version = cmp.Or(report.APIServerVersion, version)
			for _, entry := range report.Entries {
				known[entry.Resource] = cmp.Or(entry.Etcd, known[entry.Resource])
			}
			t.Logf("%v: %v", all[said].Time, known)
		}
		common := known["configmaps"]
		for _, resource := range []string{"poddisruptionbudgets.policy", "leases.coordination.k8s.io"} {
			if common == "" || common == "unknown" || known[resource] != common {
				return fmt.Errorf("%s is in %q, configmaps are in %q", resource, known[resource], common)
			}
		}
		if e := known["events"]; e == "" || e == "unknown" || e == common {
			return fmt.Errorf("events are in %q, configmaps in %q", e, common)
		}
		return nil
	})
	var info struct{ GitVersion string }
	raw, err := p.API.Get(t.Context(), "/version")
	if err != nil || json.Unmarshal(raw, &info) != nil || version != info.GitVersion || version == "" {
		t.Errorf("progress says the version %q, the API server %q (%v)", version, info.GitVersion, err)
	}
	at := fmt.Sprint("rv:", p.Now(t))
	wait.Eventually(t, 4*time.Minute, func() error {
		got := ask(t, "poddisruptionbudgets,configmaps", "-n", namespace, "--at", at, "--bus", bus.URL)
		if got.Kubecdc.Certainty != "exact" || len(got.Items) != 4 {
			return fmt.Errorf("at %s: %s, with %d objects", at, got.Kubecdc.Certainty, len(got.Items))
		}
		return nil
	})
}
