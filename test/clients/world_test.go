package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// definition is the custom resource of the tests.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.past.example.com}
spec:
  group: past.example.com
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp, shortNames: [lm]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        description: A Lamp shows a color.
        properties:
          spec:
            type: object
            required: [color]
            properties:
              color: {type: string, description: What the lamp shows., enum: [red, green]}
              modes: {type: array, items: {type: object, properties: {name: {type: string}}}}
`

// objects are those of a client's namespace.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: web}}
data: {v: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, labels: {app: web}}
data: {v: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {v: "1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "web:1"}]}
---
apiVersion: past.example.com/v1
kind: Lamp
metadata: {name: hall}
spec: {color: red}
---
apiVersion: past.example.com/v1
kind: Lamp
metadata: {name: stairs}
spec: {color: green}
`

// captured are the resources of the record.
var captured = []string{
	"configmaps", "namespaces", "deployments.apps", "lamps.past.example.com", "customresourcedefinitions.apiextensions.k8s.io",
}

// cluster is a control plane whose changes an agent records. There are no controllers: only the tests change objects.
type cluster struct {
	*world.Plane
	kubectl string
	bus     *world.Bus
	agent   *world.Agent
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Plane: world.StartPlane(t, controlplane.Options{NoControllerManager: true}), bus: world.StartBus(t)}
	c.kubectl = filepath.Join(t.TempDir(), "kubectl")
	if err := c.WriteKubectl(c.kubectl); err != nil {
		t.Fatal(err)
	}
	c.do(t, definition, "apply", "--server-side", "-f", "-")
	c.do(t, "", "wait", "--for=condition=Established", "crd/lamps.past.example.com")
	c.agent = world.StartAgent(t, c.Plane, world.AgentConfig{Bus: c.bus, Watch: "  - resources: [" + strings.Join(captured, ", ") + "]"})
	c.agent.Ready(t)
	return c
}

// do changes the cluster with kubectl.
func (c *cluster) do(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.kubectl, args...)
	cmd.Env = environment(t, c.Kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// create creates a client's namespace with its objects.
func (c *cluster) create(t *testing.T, namespace string) {
	t.Helper()
	c.do(t, "", "create", "namespace", namespace)
	c.do(t, objects, "apply", "--server-side", "-n", namespace, "-f", "-")
}

// change makes the changes that a client watches.
func (c *cluster) change(t *testing.T, namespace string) {
	t.Helper()
	c.do(t, "", "patch", "cm", "a", "-n", namespace, "--type=merge", "-p", `{"data":{"v":"2"}}`)
	c.do(t, "", "delete", "cm", "b", "-n", namespace)
	c.do(t, "", "create", "cm", "d", "-n", namespace, "--from-literal=v=1")
	c.do(t, "", "create", "cm", "b", "-n", namespace, "--from-literal=v=3")
	c.do(t, "", "delete", "cm", "c", "d", "-n", namespace)
	c.do(t, "", "create", "cm", "last", "-n", namespace)
}

// record waits until the record has all changes so far of a namespace.
func (c *cluster) record(t *testing.T, namespace string) {
	t.Helper()
	kubecdc(t, "snapshot", "--agent", c.agent.URL)
	wait.Eventually(t, 2*time.Minute, func() error { // the first progress has the version of the API server
		n, err := c.agent.Metric(t.Context(), "kubecdc_publish_events_total", `resource="progress"`)
		if err == nil && n == 0 {
			err = errors.New("no progress yet")
		}
		return err
	})
	wait.Eventually(t, time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "cm/last", "-n", namespace, "--bus", c.bus.URL).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func kubecdc(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("kubecdc %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// serve runs `kubecdc serve` and returns its kubeconfig.
func (c *cluster) serve(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(build.SharedAgent(t), append([]string{"serve", "--bus", c.bus.URL}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it has ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("kubecdc serve: %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, kubeconfig, ok := strings.Cut(strings.TrimSpace(line), "=")
	if !ok {
		t.Fatalf("kubecdc serve printed %q", line)
	}
	return kubeconfig
}

var serverAddress = regexp.MustCompile(`server: (https://[0-9.:]+)`)

// below returns a kubeconfig like another one, whose server has a path.
func below(t *testing.T, kubeconfig, path string) string {
	t.Helper()
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(out, serverAddress.ReplaceAll(raw, []byte("server: ${1}"+path)), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// environment returns the environment of a client. Its files are in a directory of the test.
func environment(t *testing.T, kubeconfig string) []string {
	dir := t.TempDir()
	out := slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
	return append(out, "KUBECONFIG="+kubeconfig, "HOME="+dir, "TMPDIR="+dir, "KUBECACHEDIR="+dir, "NO_COLOR=1")
}

// limit is how long a client may take, in a process that it shares the machine with others.
const limit = 3 * time.Minute

// process is a client that runs.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	cancel context.CancelFunc

	mu    sync.Mutex
	lines []string
	ended chan struct{}
	err   error // readable after ended is closed
}

// start starts a client.
func start(t *testing.T, kubeconfig string, argv ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), ended: make(chan struct{}), cancel: cancel}
	p.cmd.Env = environment(t, kubeconfig)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = 5 * time.Second
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, scanner.Text())
			p.mu.Unlock()
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// output returns the lines so far.
func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// waitFor waits until the client has printed a line that begins with some text.
func (p *process) waitFor(t *testing.T, begin string) {
	t.Helper()
	wait.Eventually(t, limit, func() error {
		for _, line := range p.output() {
			if strings.HasPrefix(line, begin) {
				return nil
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("%v ended: %v\n%s\n%s", p.cmd.Args, p.err, strings.Join(p.output(), "\n"), &p.stderr)
		default:
		}
		return fmt.Errorf("%v has not printed %q, but %q", p.cmd.Args, begin, p.output())
	})
}

// finish returns all lines of a client that ends by itself, without an error.
func (p *process) finish(t *testing.T) []string {
	t.Helper()
	<-p.ended
	p.cancel()
	if p.err != nil {
		t.Fatalf("%v: %v\n%s\n%s", p.cmd.Args, p.err, strings.Join(p.output(), "\n"), &p.stderr)
	}
	return p.output()
}
