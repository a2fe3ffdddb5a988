package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// shopObjects is what the cluster of TestKubectlAgainstThePast begins with.
const shopObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop-b, labels: {app: web}}
---
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {node-role.kubernetes.io/control-plane: "", app: web}}
spec: {unschedulable: true}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop, labels: {app: web}}
data: {a: "1", b: "2"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop-b}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, nodePort: 30080}, {name: https, port: 443, nodePort: 30443}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop-b}
spec: {type: ExternalName, externalName: example.com}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: app, image: "web:1"}, {name: log, image: "log:1"}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: import, namespace: shop}
spec:
  completions: 3
  parallelism: 2
  template: {spec: {automountServiceAccountToken: false, restartPolicy: Never, containers: [{name: import, image: "import:1"}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  ingressClassName: nginx
  tls: [{hosts: [a.example.com], secretName: tls}]
  rules: [{host: a.example.com}, {host: b.example.com}, {host: c.example.com}, {host: d.example.com}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/disk
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
allowVolumeExpansion: true
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.past.example.com}
spec:
  group: past.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Size, type: integer, jsonPath: .spec.size, priority: 1}
    - {name: Made, type: date, jsonPath: .metadata.creationTimestamp}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.past.example.com}
spec:
  group: past.example.com
  scope: Cluster
  names: {plural: gizmos, singular: gizmo, kind: Gizmo}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const shopGadgets = `
apiVersion: past.example.com/v1
kind: Gadget
metadata: {name: gear, namespace: shop, labels: {app: web}}
spec: {color: red, size: 7, list: [1, 2.5, true, null]}
---
apiVersion: past.example.com/v1
kind: Gadget
metadata: {name: cog, namespace: shop-b}
spec: {size: 3}
---
apiVersion: past.example.com/v1
kind: Gizmo
metadata: {name: gizmo-1}
`

// TestKubectlAgainstThePast runs kubectl against a cluster at several moments, and later against the record of the same moments: it prints
// the same, but for ages.
func TestKubectlAgainstThePast(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{})
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	if err := p.WriteKubectl(kubectl); err != nil {
		t.Fatal(err)
	}
	live := client{kubectl: kubectl, kubeconfig: p.Kubeconfig, cache: filepath.Join(dir, "live")}
	live.do(t, shopObjects, "apply", "--server-side", "-f", "-")
	live.do(t, "", "wait", "--for=condition=Established", "crd/gadgets.past.example.com", "crd/gizmos.past.example.com")
	live.do(t, shopGadgets, "apply", "--server-side", "-f", "-")
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: `  - resources: [pods, deployments.apps, replicasets.apps, services, configmaps, namespaces, nodes, resourcequotas, limitranges,
      jobs.batch, ingresses.networking.k8s.io, roles.rbac.authorization.k8s.io, customresourcedefinitions.apiextensions.k8s.io,
      storageclasses.storage.k8s.io, apiservices.apiregistration.k8s.io, gadgets.past.example.com, gizmos.past.example.com, widgets.e2e.kubecdc.dev]`})
	a.Ready(t)

	pod := func() string {
		return strings.Fields(live.do(t, "", "get", "pods", "-n", "shop", "-l", "app=web", "-o", "name"))[0]
	}
	steps := []func(){
		func() {},
		func() { live.do(t, "", "scale", "-n", "shop", "deploy/web", "--replicas=5") },
		func() {
			live.do(t, "", "patch", "-n", "shop", pod(), "--subresource=status", "-p", `{"status":{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],
				"containerStatuses":[{"name":"app","image":"web:1","imageID":"x","ready":true,"restartCount":3,"state":{"running":{}}},
				{"name":"log","image":"log:1","imageID":"x","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`)
			live.do(t, "", "patch", "node", "node-1", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Ready","status":"True"}],
				"addresses":[{"type":"InternalIP","address":"10.0.0.9"}],"nodeInfo":{"architecture":"amd64","kernelVersion":"6.1","kubeletVersion":"v1.37.1"}}}`)
		},
		func() {
			live.do(t, "", "set", "image", "-n", "shop", "deploy/web", "app=web:2")
			live.do(t, "", "delete", "cm", "settings", "-n", "shop-b")
			past(t, "snapshot", "--agent", a.URL)
		},
		func() {
			live.do(t, "", "patch", "crd", "gadgets.past.example.com", "--type=json", "-p",
				`[{"op":"add","path":"/spec/versions/0/additionalPrinterColumns/1","value":{"name":"List","type":"string","jsonPath":".spec.list"}}]`)
			live.do(t, "", "label", "gadget", "-n", "shop-b", "cog", "app=web")
			live.do(t, "", "delete", "job", "import", "-n", "shop")
			live.do(t, "", "patch", "svc", "web", "-n", "shop", "-p", `{"spec":{"type":"LoadBalancer"}}`)
		},
	}
	for k := len(steps); k < size(5, 5, 20); k++ {
		steps = append(steps, laterStep(t, &live, k))
	}
	type asked struct {
		rev     uint64
		answers map[int]string // by the index of the command
	}
	var moments []asked
	commands := pastCommands()
	every := size(2, 2, 1) // Each command runs at each second moment, or at all.
	for k, step := range steps {
		step()
		wait.Settled(t, 3*time.Second, time.Minute, p.History.ChangesIn("shop", "shop-b", ""))
		m := asked{rev: p.Now(t), answers: map[int]string{}}
		for i := k % every; i < len(commands); i += every {
			m.answers[i] = live.answer(t, commands[i])
		}
		moments = append(moments, m)
	}
	live.do(t, "", "create", "cm", "-n", "shop", "last")
	wait.Eventually(t, time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "cm/last", "-n", "shop", "--bus", bus.URL).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})

	url, kubeconfig := servePast(t, "--bus", bus.URL, "--max-moments", "2")
	compared := 0
	for k, m := range moments {
		then := client{
			kubectl: kubectl, kubeconfig: kubeconfig, cache: filepath.Join(dir, fmt.Sprint("then-", k)),
			flags: []string{"--server", fmt.Sprintf("%s/at/rv:%d", url, m.rev)},
		}
		for i, answer := range m.answers {
			compared++
			if diff := cmp.Diff(answer, then.answer(t, commands[i])); diff != "" {
				t.Errorf("moment %d (rv:%d): kubectl %s: -live +record\n%s", k, m.rev, strings.Join(commands[i], " "), diff)
			}
		}
	}
	t.Logf("%d answers of kubectl compared at %d moments", compared, len(moments))
}

// laterStep returns the changes before moment k, of the moments that only the long form has.
func laterStep(t *testing.T, live *client, k int) func() {
	text := fmt.Sprint(k)
	return func() {
		switch k % 5 {
		case 0:
			live.do(t, "", "scale", "-n", "shop", "deploy/web", "--replicas="+fmt.Sprint(1+k%4))
			live.do(t, "", "annotate", "sc", "fast", "storageclass.kubernetes.io/is-default-class="+fmt.Sprint(k%2 == 0), "--overwrite")
		case 1:
			live.do(t, "", "set", "image", "-n", "shop", "deploy/web", "app=web:"+text)
			live.do(t, "", "patch", "node", "node-1", "-p", `{"spec":{"unschedulable":`+fmt.Sprint(k%2 == 0)+`}}`)
		case 2:
			live.do(t, "", "patch", "gadget", "gear", "-n", "shop", "--type=merge", "-p", `{"spec":{"size":`+text+`,"color":"color-`+text+`"}}`)
			live.do(t, strings.ReplaceAll(shopGadgets, "gizmo-1", "gizmo-"+text), "apply", "--server-side", "--force-conflicts", "-f", "-")
		case 3:
			live.do(t, "", "create", "cm", "-n", "shop", "extra-"+text, "--from-literal=k="+text)
			live.do(t, "", "label", "cm", "-n", "shop", "extra-"+text, "app=web")
			live.do(t, "", "delete", "pods", "-n", "shop", "-l", "app=web", "--wait=false")
		case 4:
			live.do(t, "", "create", "job", "-n", "shop", "job-"+text, "--image=import:"+text)
			live.do(t, "", "patch", "ingress", "web", "-n", "shop", "--type=json", "-p", `[{"op":"remove","path":"/spec/rules/0"},{"op":"add","path":"/spec/rules/-","value":{"host":"h`+text+`.example.com"}}]`)
		}
	}
}

// pastCommands are those that kubectl runs at each moment.
func pastCommands() [][]string {
	const all = "pods,deployments,replicasets,services,configmaps,namespaces,nodes,jobs,ingresses,roles,gadgets,gizmos,widgets,crd"
	return [][]string{
		{"get", all, "-A"},
		{"get", all, "-n", "shop"},
		{"get", all, "-A", "-o", "wide"},
		{"get", all, "-n", "shop", "-o", "yaml"},
		{"get", all, "-A", "-o", "json"},
		{"get", all, "-A", "-l", "app=web", "--show-labels"},
		{"get", all, "-A", "-l", "app notin (web),!none", "-o", "name"},
		{"get", all, "-A", "--field-selector", "metadata.name=web"},
		{"get", "pods", "-A", "--field-selector", "status.phase=Running,spec.nodeName=", "-o", "wide"},
		{"get", "pods,cm,gd", "-A", "--sort-by=.metadata.name"},
		{"get", "pods", "-A", "--sort-by=.status.phase", "-o", "wide"},
		{"get", all, "-A", "--chunk-size=2"},
		{"get", "cm,rs", "-A", "-o", "yaml", "--chunk-size=1"},
		{"get", "deploy/web", "-n", "shop", "-L", "app"},
		{"get", "deploy/web", "-n", "shop", "-o", "jsonpath={.spec.template.spec.containers[0].image}"},
		{"get", "gd", "-A", "-o", "custom-columns=NAME:.metadata.name,SIZE:.spec.size"},
		{"get", "gizmo.past.example.com", "gizmo-1", "-o", "yaml"},
		{"get", "gadgets,jobs", "-n", "none"},
		{"get", "deploy", "none", "-n", "shop"},
		{"get", "nothings"},
		{"get", "sc"},
		{"get", "sc", "standard", "-o", "wide"},
		{"get", "apiservices"},
		{"describe", "cm,gd,ns,role", "-A"},
		{"api-resources", "--namespaced", "--api-group=past.example.com"},
	}
}

// client is a kubectl with its cluster.
type client struct {
	kubectl, kubeconfig, cache string
	flags                      []string
}

func (c *client) command(ctx context.Context, args []string) *exec.Cmd {
	args = append(append([]string{"--kubeconfig", c.kubeconfig, "--cache-dir", c.cache}, c.flags...), args...)
	return exec.CommandContext(ctx, c.kubectl, args...)
}

// do runs kubectl, which must succeed.
func (c *client) do(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := c.command(t.Context(), args)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, failed.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

var (
	agesOfTables = regexp.MustCompile(`\b([0-9]+[ydhms])+\b|<invalid>`)
	blanks       = regexp.MustCompile(`[ \t]+`)
)

// answer returns what kubectl prints, without ages and warnings.
func (c *client) answer(t *testing.T, args []string) string {
	t.Helper()
	cmd := c.command(t.Context(), args)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	text := out.String()
	for line := range strings.Lines(said.String()) {
		if !strings.HasPrefix(line, "Warning: ") {
			text += "stderr: " + line
		}
	}
	if !strings.Contains(strings.Join(args, " "), "-o yaml") && !strings.Contains(strings.Join(args, " "), "-o json") {
		text = blanks.ReplaceAllString(agesOfTables.ReplaceAllString(text, "AGE"), " ")
	}
	return fmt.Sprintf("%sexit code %d", text, cmd.ProcessState.ExitCode())
}

// servePast starts `kubecdc serve` and returns its address and its kubeconfig.
func servePast(t *testing.T, args ...string) (url, kubeconfig string) {
	t.Helper()
	_, url, kubeconfig = servePastAs(t, args...)
	return url, kubeconfig
}

// servePastAs also returns the process.
func servePastAs(t *testing.T, args ...string) (pid int, url, kubeconfig string) {
	t.Helper()
	cmd := exec.Command(build.SharedAgent(t), append([]string{"serve"}, args...)...)
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
	_, kubeconfig, _ = strings.Cut(strings.TrimSpace(line), "=")
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, regexp.MustCompile(`https://[0-9.:]+`).FindString(string(raw)), kubeconfig
}
