package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestReplayFindsABug records a rollout, and replays it to examples/go/rollout. Without its
// comparison of generations, the controller prints that the rollout is complete before a Pod of the
// new template is ready. The guide about time travel shows this.
func TestReplayFindsABug(t *testing.T) {
	slow(t)
	t.Parallel()
	const comparison = "\treturn d.Status.ObservedGeneration >= d.Generation && // the status is of this spec, not of an earlier one\n\t\t"
	var right, wrong string
	var builds errgroup.Group
	builds.Go(func() (err error) {
		right, err = buildRollout(t, "", "")
		if err == nil {
			wrong, err = buildRollout(t, comparison, "\treturn ") // quick: only main differs
		}
		return err
	})
	defer func() { _ = builds.Wait() }()
	p := world.SharedPlane(t)
	const ns = "rollout"
	p.NewNamespace(t, ns)
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [deployments.apps, replicasets.apps, pods]\n    namespaces: [" + ns + "]",
	})
	a.Ready(t)
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, "deployments.apps", "replicasets.apps", "pods")
	path := world.Collection("deployments.apps", ns)
	if _, err := p.API.Create(t.Context(), path, deploymentOf("web:1")); err != nil {
		t.Fatal(err)
	}
	runPods(t, p, ns, "web:1")
	from := p.Now(t)
	if _, err := p.API.MergePatch(t.Context(), path+"/web", deploymentOf("web:2")); err != nil {
		t.Fatal(err)
	}
	ready := runPods(t, p, ns, "web:2")
	until := p.Now(t)
	// it shows that the record is complete up to here; a progress event may take a minute
	past(t, "snapshot", "--agent", a.URL)
	awaitRecord(t, bus, "deploy/web", ns, until)
	if err := builds.Wait(); err != nil {
		t.Fatal(err)
	}

	var replays sync.WaitGroup
	defer replays.Wait()
	for _, c := range []struct {
		program string
		early   bool
	}{{wrong, true}, {right, false}} {
		kubeconfig := world.ServePast(t, "--bus", bus.URL, "--from", fmt.Sprint("rv:", from), "--to",
			fmt.Sprint("rv:", until), "--speed", "max").Kubeconfig
		replays.Go(func() {
			line, err := firstLine(t.Context(), c.program, kubeconfig)
			var rv uint64
			if err == nil {
				_, err = fmt.Sscanf(line, "rollout/web runs web:2, resourceVersion %d\n", &rv)
			}
			if err != nil {
				t.Errorf("%q: %v", line, err)
				return
			}
			if rv <= from || rv > until {
				t.Errorf("resourceVersion %d is not between %d and %d", rv, from, until)
			}
			if early := rv < ready[0]; early != c.early {
				t.Errorf("the first Pod of web:2 was ready at %d; early: %v, want %v: %s", ready[0], early, c.early,
					line)
			}
			if complete := rv > ready[len(ready)-1]; complete == c.early {
				t.Errorf("the last Pod of web:2 was ready at %d; complete: %v: %s", ready[len(ready)-1], complete, line)
			}
		})
	}
}

// deploymentOf returns a Deployment whose rollout replaces one Pod after the other.
func deploymentOf(image string) obj {
	labels := obj{"app": "web"}
	return obj{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": obj{"name": "web"},
		"spec": obj{
			"replicas": 3, "selector": obj{"matchLabels": labels},
			"strategy": obj{"rollingUpdate": obj{"maxSurge": 1, "maxUnavailable": 0}},
			"template": obj{"metadata": obj{"labels": labels}, "spec": obj{"containers": []obj{{
				"name":  "app",
				"image": image,
			}}}},
		},
	}
}

// runPods sets the Pods of an image to ready, as a kubelet does, until the rollout is complete. It
// returns the resourceVersions at which they were ready.
func runPods(t *testing.T, p *world.Plane, namespace, image string) (ready []uint64) {
	t.Helper()
	type pod struct {
		Metadata struct{ Name, ResourceVersion string }
		Spec     struct{ Containers []struct{ Image string } }
		Status   struct {
			Conditions []struct{ Type, Status string }
		}
	}
	wait.Eventually(t, 2*time.Minute, func() error {
		raw, err := p.API.Get(t.Context(), world.Collection("pods", namespace))
		if err != nil {
			return err
		}
		var list struct{ Items []pod }
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		for _, x := range list.Items {
			if x.Spec.Containers[0].Image != image || len(x.Status.Conditions) > 0 {
				continue
			}
			raw, err := p.API.MergePatch(t.Context(), world.Collection("pods", namespace)+"/"+x.Metadata.Name+"/status",
				obj{"status": obj{
					"phase": "Running", "conditions": []obj{{
						"type":               "Ready",
						"status":             "True",
						"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
					}},
				}})
			if err != nil {
				return err
			}
			if err := json.Unmarshal(raw, &x); err != nil {
				return err
			}
			ready = append(ready, number(t, x.Metadata.ResourceVersion))
		}
		raw, err = p.API.Get(t.Context(), world.Collection("deployments.apps", namespace)+"/web")
		if err != nil {
			return err
		}
		var d struct {
			Metadata struct{ Generation int }
			Status   struct{ ObservedGeneration, Replicas, UpdatedReplicas, AvailableReplicas int }
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		if s := d.Status; s.ObservedGeneration != d.Metadata.Generation || s.Replicas != 3 || s.UpdatedReplicas != 3 ||
			s.AvailableReplicas != 3 {
			return fmt.Errorf("the rollout of %s is not complete: %+v", image, d)
		}
		return nil
	})
	if len(ready) != 3 || !slices.IsSorted(ready) {
		t.Fatalf("3 Pods of %s are ready, but these resourceVersions were seen: %v", image, ready)
	}
	return ready
}

func number(t *testing.T, text string) (n uint64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// awaitRecord waits until the record has all changes of a resource up to a revision.
func awaitRecord(t *testing.T, bus *world.Bus, object, namespace string, rev uint64) {
	t.Helper()
	wait.Eventually(t, 3*time.Minute, func() error {
		a := ask(t, object, "-n", namespace, "--at", fmt.Sprint("rv:", rev), "--bus", bus.URL)
		if a.Kubecdc.Certainty != "exact" {
			return fmt.Errorf("%s at %d: %s", object, rev, a.Kubecdc.Certainty)
		}
		return nil
	})
}

// buildRollout builds examples/go/rollout with another text in place of a part of its source.
func buildRollout(t *testing.T, old, replacement string) (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	dir, source := t.TempDir(), filepath.Join(root, "examples", "go", "rollout", "main.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	if strings.Count(string(text), old) != 1 && old != "" {
		return "", fmt.Errorf("%s does not have this once: %s", source, old)
	}
	changed, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	mapping, err := json.Marshal(obj{"Replace": obj{source: changed}})
	if err != nil {
		return "", err
	}
	for path, content := range map[string]string{
		changed: strings.Replace(string(text), old, replacement, 1),
		overlay: string(mapping),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	program := filepath.Join(dir, "rollout")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", program,
		"./examples/go/rollout")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

// firstLine runs a program with a kubeconfig, and ends it after the first line that it prints.
func firstLine(ctx context.Context, program, kubeconfig string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_ = cmd.Process.Signal(os.Interrupt) // it has ended
	return line, errors.Join(err, cmd.Wait())
}
