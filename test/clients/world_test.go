package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// staged are more objects of a namespace, for clients that show a whole cluster. NAMESPACE is its
// name. There are no controllers: the objects are as they are written here, with their status.
const staged = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: default}
---
apiVersion: v1
kind: Node
metadata: {name: node-NAMESPACE, labels: {kubernetes.io/hostname: node-NAMESPACE}}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True", reason: KubeletReady, lastHeartbeatTime: "2026-11-01T08:00:00Z", lastTransitionTime: "2026-11-01T08:00:00Z"}]
  nodeInfo: {kubeletVersion: v1.37.1, osImage: Debian, kernelVersion: 6.1.0, containerRuntimeVersion: "containerd://2.2.0", architecture: amd64,
    bootID: b, machineID: m, systemUUID: s, operatingSystem: linux, kubeProxyVersion: v1.37.1}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec:
  nodeName: node-NAMESPACE
  containers: [{name: app, image: "web:1", ports: [{name: http, containerPort: 80}], resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}}]
status:
  phase: Running
  podIP: 10.0.0.1
  startTime: "2026-11-01T08:00:00Z"
  conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-11-01T08:00:01Z"}]
  containerStatuses: [{name: app, image: "web:1", imageID: "web@1", ready: true, started: true, restartCount: 0, containerID: "containerd://1", state: {running: {startedAt: "2026-11-01T08:00:01Z"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, labels: {app: web}}
spec:
  nodeName: node-NAMESPACE
  containers: [{name: app, image: web}]
status:
  phase: Running
  podIP: 10.0.0.2
  startTime: "2026-11-01T08:00:00Z"
  conditions: [{type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: "2026-11-01T08:00:01Z"}]
  containerStatuses:
  - {name: app, image: web, imageID: "web@1", ready: false, started: false, restartCount: 7, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Secret
metadata: {name: unused}
stringData: {password: planted}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 9
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dangling}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: none}
subjects: [{kind: ServiceAccount, name: none, namespace: NAMESPACE}]
---
# of Pods
apiVersion: v1
kind: Event
metadata: {name: web-2.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web-2, namespace: NAMESPACE, uid: "UID-OF-web-2"}
reason: BackOff
message: Back-off restarting failed container
type: Warning
source: {component: kubelet, host: node-NAMESPACE}
count: 7
firstTimestamp: "2026-11-01T08:00:02Z"
lastTimestamp: "2026-11-01T08:10:00Z"
---
apiVersion: v1
kind: Event
metadata: {name: web-1.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web-1, namespace: NAMESPACE, uid: "UID-OF-web-1"}
reason: Started
message: Started container app
type: Normal
source: {component: kubelet, host: node-NAMESPACE}
count: 1
firstTimestamp: "2026-11-01T08:00:01Z"
lastTimestamp: "2026-11-01T08:00:01Z"
`

// deployed is the status of the Deployment among objects.
const deployed = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, readyReplicas: 1, availableReplicas: 1, unavailableReplicas: 2}
`

// captured are the resources of the record.
var captured = []string{
	"configmaps", "namespaces", "deployments.apps", "lamps.past.example.com",
	"customresourcedefinitions.apiextensions.k8s.io",
	"endpoints", "events", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "secrets", "serviceaccounts",
	"services",
	"daemonsets.apps", "replicasets.apps", "statefulsets.apps", "horizontalpodautoscalers.autoscaling",
	"cronjobs.batch", "jobs.batch",
	"ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy",
	"clusterrolebindings.rbac.authorization.k8s.io",
	"clusterroles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
	"roles.rbac.authorization.k8s.io",
}

// cluster is a control plane whose changes an agent records, with the values of Secrets. There are
// no controllers: only the tests change objects.
type cluster struct {
	*world.Plane
	*recording

	kubectl string
}

// recording is a record of the cluster, and the agent that writes it.
type recording struct {
	bus   *world.Bus
	agent *world.Agent
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Plane: world.StartPlane(t, controlplane.Options{NoControllerManager: true})}
	c.kubectl = filepath.Join(t.TempDir(), "kubectl")
	if err := c.WriteKubectl(c.kubectl); err != nil {
		t.Fatal(err)
	}
	c.do(t, definition, "apply", "--server-side", "-f", "-")
	c.do(t, "", "wait", "--for=condition=Established", "crd/lamps.past.example.com")
	c.recording = c.startRecording(t, captured, "redaction: {secrets: false}")
	return c
}

// startRecording starts an agent, with more YAML in its configuration.
func (c *cluster) startRecording(t *testing.T, resources []string, extra string) *recording {
	t.Helper()
	r := &recording{bus: world.StartBus(t)}
	r.agent = world.StartAgent(t, c.Plane, world.AgentConfig{
		Bus:   r.bus,
		Watch: "  - resources: [" + strings.Join(resources, ", ") + "]",
		Extra: extra,
	})
	r.agent.Ready(t)
	return r
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

// stage creates the other objects of a client's namespace, with their status.
func (c *cluster) stage(t *testing.T, namespace string) {
	t.Helper()
	objects, events, _ := strings.Cut(strings.ReplaceAll(staged, "NAMESPACE", namespace), "---\n# of Pods\n")
	c.do(t, objects, "apply", "--server-side", "--force-conflicts", "-n", namespace, "-f", "-")
	states := []string{deployed}
	for object := range strings.SplitSeq(objects, "---\n") {
		if strings.Contains(object, "\nstatus:") {
			states = append(states, object)
		}
	}
	c.do(t, strings.Join(states, "---\n"), "apply", "--server-side", "--force-conflicts", "--subresource=status", "-n",
		namespace, "-f", "-")
	for _, name := range []string{"web-1", "web-2"} {
		raw, err := c.API.Get(t.Context(), "/api/v1/namespaces/"+namespace+"/pods/"+name)
		if err != nil {
			t.Fatal(err)
		}
		var pod metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &pod); err != nil {
			t.Fatal(err)
		}
		events = strings.ReplaceAll(events, "UID-OF-"+name, string(pod.UID))
	}
	c.do(t, events, "apply", "--server-side", "-n", namespace, "-f", "-")
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

// moment returns the moment now, as kubecdc's options have it.
func (c *cluster) moment(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("rv:%d", c.Now(t))
}

// record waits until the record has all changes so far of a namespace.
func (r *recording) record(t *testing.T, namespace string) {
	t.Helper()
	kubecdc(t, "snapshot", "--agent", r.agent.URL)
	wait.Eventually(t, 2*time.Minute, func() error { // the first progress has the version of the API server
		n, err := r.agent.Metric(t.Context(), "kubecdc_publish_events_total", `resource="progress"`)
		if err == nil && n == 0 {
			err = errors.New("no progress yet")
		}
		return err
	})
	wait.Eventually(t, time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "cm/last", "-n", namespace, "--bus",
			r.bus.URL).CombinedOutput()
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
func (r *recording) serve(t *testing.T, args ...string) string {
	t.Helper()
	return world.ServePast(t, append([]string{"--bus", r.bus.URL}, args...)...).Kubeconfig
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
