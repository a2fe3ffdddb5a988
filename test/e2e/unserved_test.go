package e2e_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// TestGroupIsNotServedForAWhile restarts the API server without a group that it serves itself, while the agent runs and while it does
// not. The objects are still in etcd, so nothing may be sent about them.
func TestGroupIsNotServedForAWhile(t *testing.T) {
	slow(t)
	t.Parallel()
	const requests = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests"
	with := []string{"--runtime-config=lifecycle.k8s.io/v1alpha1=true", "--feature-gates=EvictionRequestAPI=true", "--storage-media-type=application/json"}
	p := startPlane(t, controlplane.Options{APIServerArgs: with, NoControllerManager: true})
	for n := range 3 {
		_, err := p.api.create(t.Context(), requests, obj{
			"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": obj{"name": fmt.Sprint("request-", n)},
			"spec": obj{"requester": "shop.test/drain", "intent": "Eviction", "target": obj{
				"pod": obj{"name": "web", "uid": fmt.Sprintf("6b9b4fd3-3c4c-4e0c-8f0a-00000000000%d", n)},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bus := startBus(t)
	config := agentConfig{
		Bus: bus, Watch: "  - resources: [evictionrequests.lifecycle.k8s.io, configmaps]",
		Checkpoint: fmt.Sprintf("{file: {path: %q}}", filepath.Join(t.TempDir(), "checkpoint.json")),
	}
	a := startAgent(t, p, config)
	s := readStream(t, bus, p.reader())
	s.completed(t, "evictionrequests.lifecycle.k8s.io")
	a.ready(t)
	begin := len(s.all())
	restart := func(args ...string) {
		t.Helper()
		if err := p.RestartAPIServer(t.Context(), 0, args...); err != nil {
			t.Fatal(err)
		}
	}
	// change has what the agent observes told of it.
	change := func(uri string, patch obj) {
		t.Helper()
		var body []byte
		eventually(t, time.Minute, func() (err error) { // It is served a moment later.
			body, err = p.api.mergePatch(t.Context(), uri, patch)
			return err
		})
		o, err := decodeObject(body)
		if err != nil {
			t.Fatal(err)
		}
		want, err := strconv.ParseUint(fmt.Sprint(at(o, "metadata", "resourceVersion")), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, func() error {
			for _, rec := range s.all()[begin:] {
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
			if err := a.stop(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		restart("--storage-media-type=application/json")
		if down {
			a = startAgent(t, p, config)
		}
		eventually(t, time.Minute, func() error {
			status, err := a.get(t.Context(), "/status")
			if err == nil && !strings.Contains(status, `"phase": "unserved"`) {
				err = errors.New("discovery has not looked yet")
			}
			return err
		})
		change("/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking", obj{"metadata": obj{"labels": obj{"n": fmt.Sprint(n)}}})
		restart(with...)
		change(requests+"/request-0", intent([]string{"Withdrawn", "Eviction"}[n]))
	}
	for _, rec := range s.all()[begin:] {
		of := rec.Stream != "" && strings.HasPrefix(rec.Scope.Text, "evictionrequests")
		if rec.Op == deleted || of && (rec.Stream == gap && !rec.Recovered || rec.Stream == snapshotStarted) {
			t.Errorf("the bus has %+v", rec)
		}
	}
}
