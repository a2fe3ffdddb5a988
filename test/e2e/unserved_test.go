package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/oracle/selection"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestGroupIsNotServedForAWhile restarts the API server without a group that it serves itself,
// while the agent runs and while it does not. The objects are still in etcd, so nothing may be sent
// about them.
func TestGroupIsNotServedForAWhile(t *testing.T) {
	slow(t)
	t.Parallel()
	const requests = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests"
	with := []string{
		"--runtime-config=lifecycle.k8s.io/v1alpha1=true", "--feature-gates=EvictionRequestAPI=true",
		"--storage-media-type=application/json",
	}
	p := world.StartPlane(t, controlplane.Options{APIServerArgs: with, NoControllerManager: true})
	for n := range 3 {
		_, err := p.API.Create(t.Context(), requests, obj{
			"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": obj{
				"name": fmt.Sprint("request-", n),
			},
			"spec": obj{"requester": "shop.test/drain", "intent": "Eviction", "target": obj{
				"pod": obj{"name": "web", "uid": fmt.Sprintf("6b9b4fd3-3c4c-4e0c-8f0a-00000000000%d", n)},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bus := world.StartBus(t)
	config := world.AgentConfig{
		Bus: bus, Watch: "  - resources: [evictionrequests.lifecycle.k8s.io, configmaps]",
		Checkpoint: fmt.Sprintf("{file: {path: %q}}", filepath.Join(t.TempDir(), "checkpoint.json")),
	}
	a := world.StartAgent(t, p, config)
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, "evictionrequests.lifecycle.k8s.io")
	a.Ready(t)
	begin := len(s.All())
	restart := func(args ...string) {
		t.Helper()
		if err := p.RestartAPIServer(t.Context(), 0, args...); err != nil {
			t.Fatal(err)
		}
	}
	// change changes an observed object and waits for its record.
	change := func(uri string, patch obj) {
		t.Helper()
		var body []byte
		wait.Eventually(t, time.Minute, func() (err error) { // It is served a moment later.
			body, err = p.API.MergePatch(t.Context(), uri, patch)
			return err
		})
		o, err := oracle.DecodeObject(body)
		if err != nil {
			t.Fatal(err)
		}
		want, err := strconv.ParseUint(fmt.Sprint(selection.At(o, "metadata", "resourceVersion")), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		wait.Eventually(t, time.Minute, func() error {
			for _, rec := range s.All()[begin:] {
				if rec.Op != "" && rec.Rev == want {
					return nil
				}
			}
			return fmt.Errorf("the bus has nothing of revision %d", want)
		})
	}
	intent := func(to string) obj { return obj{"spec": obj{"intent": to}} }
	for n, down := range []bool{false, true} {
		if down {
			if err := a.Stop(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		restart("--storage-media-type=application/json")
		if down {
			a = world.StartAgent(t, p, config)
		}
		wait.Eventually(t, time.Minute, func() error {
			text, err := a.Get(t.Context(), "/status")
			if err != nil {
				return err
			}
			var status struct {
				Scopes []struct {
					Health   string
					Failures int
				}
			}
			if err := json.Unmarshal([]byte(text), &status); err != nil {
				return err
			}
			for _, s := range status.Scopes {
				if s.Health == "notserved" && s.Failures == 0 { // discovery found that, not a failed request
					return nil
				}
			}
			return errors.New("discovery has not looked yet")
		})
		change("/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking", obj{
			"metadata": obj{"labels": obj{"n": fmt.Sprint(n)}},
		})
		restart(with...)
		change(requests+"/request-0", intent([]string{"Withdrawn", "Eviction"}[n]))
	}
	for _, rec := range s.All()[begin:] {
		of := rec.Stream != "" && strings.HasPrefix(rec.Scope.Text, "evictionrequests")
		if rec.Op == oracle.Deleted ||
			of && (rec.Stream == oracle.Gap && !rec.Recovered || rec.Stream == oracle.SnapshotStarted) {
			oracle.Fail(t, "the bus has %+v", rec)
		}
	}
}
