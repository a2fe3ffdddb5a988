package e2e_test

import (
	"context"
	"encoding/base64"
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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// The values of a Secret. They are as long as the hashes that replace them, because kubectl
// describe prints their lengths.
const (
	plantedUser     = "user-user-user-user-user-user-user-user-use"
	plantedPassword = "word-word-word-word-word-word-word-word-wor"
)

// redactedValues matches the values of Secrets in kubectl's output: planted ones, and the hashes
// that replace them, which are base64 in the API.
var redactedValues = regexp.MustCompile(base64.StdEncoding.EncodeToString([]byte(plantedUser)) + "|" +
	base64.StdEncoding.EncodeToString([]byte(plantedPassword)) + "|" +
	base64.StdEncoding.EncodeToString([]byte("hmac-sha256:")) + "[A-Za-z0-9+/]+=*")

// shopObjects are the objects that the cluster of TestKubectlAgainstThePast starts with.
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
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {automountServiceAccountToken: false, containers: [{name: db, image: "db:1"}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: shop}
spec:
  selector: {matchLabels: {app: logs}}
  template: {metadata: {labels: {app: logs}}, spec: {automountServiceAccountToken: false, nodeSelector: {none: none}, containers: [{name: logs, image: "logs:1"}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: shop}
spec:
  schedule: "0 3 29 2 *"
  timeZone: Etc/UTC
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: report, image: "report:1"}]}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: none, hostPath: {path: /disk}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: shop}
spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: db, namespace: shop-b}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec: {podSelector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [front]}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}, {kind: Group, name: ops, apiGroup: rbac.authorization.k8s.io}, {kind: ServiceAccount, name: default, namespace: shop}]
---
apiVersion: v1
kind: Secret
metadata: {name: empty, namespace: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: shop, labels: {app: web}}
stringData: {user: ` + plantedUser + `, password: ` + plantedPassword + `}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lock, namespace: shop}
spec: {holderIdentity: web-0}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
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

// TestKubectlAgainstThePast runs kubectl against a cluster at several moments, and later against
// the record of the same moments. The output must be the same, except for ages and redacted values.
func TestKubectlAgainstThePast(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{}) // The commands list all namespaces, and resources of the cluster.
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
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("key", 11)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [" + strings.Join(pastResources, ", ") + "]",
		Extra: fmt.Sprintf("redaction: {mode: hash, keyFile: %q}", key),
	})
	a.Ready(t)

	pod := func() string {
		return strings.Fields(live.do(t, "", "get", "pods", "-n", "shop", "-l", "app=web", "-o", "name"))[0]
	}
	steps := []func(){
		func() {},
		func() { live.do(t, "", "scale", "-n", "shop", "deploy/web", "--replicas=5") },
		func() {
			live.do(t, "", "patch", "-n", "shop", pod(), "--subresource=status", "-p",
				`{"status":{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],
				"containerStatuses":[{"name":"app","image":"web:1","imageID":"x","ready":true,"restartCount":3,"state":{"running":{}}},
				{"name":"log","image":"log:1","imageID":"x","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`)
			live.do(t, "", "patch", "node", "node-1", "--subresource=status", "-p",
				`{"status":{"conditions":[{"type":"Ready","status":"True"}],
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
	for k := len(steps); k < size(0, 0, 20); k++ {
		steps = append(steps, laterStep(t, &live, k))
	}
	type asked struct {
		rev     uint64
		answers map[int]string // by the index of the command
	}
	var moments []asked
	commands := pastCommands()
	// Steps with a moment after them: each command runs at one of them. In the long form, all
	// commands run after every step.
	asks := []int{1, 3, 4}
	for k, step := range steps {
		step()
		n := slices.Index(asks, k)
		if n < 0 && !long() {
			continue
		}
		of := map[int][]string{}
		for i, command := range commands {
			if long() || i%len(asks) == n {
				of[i] = command
			}
		}
		changes := p.History.ChangesIn("shop", "shop-b", "")
		m := asked{}
		for before := ^uint64(0); before != changes(); {
			// a controller that acts meanwhile, such as the node controller, mixes two moments
			wait.Settled(t, 3*time.Second, time.Minute, changes)
			m.rev, before = p.Now(t), changes()
			m.answers = live.answers(t, of)
			p.Now(t)
		}
		moments = append(moments, m)
	}
	live.do(t, "", "create", "cm", "-n", "shop", "last")
	past(t, "snapshot", "--agent", a.URL) // the record then ends after the last moment for all resources
	wait.Eventually(t, time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "cm/last", "-n", "shop", "--bus",
			bus.URL).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})

	served := world.ServePast(t, "--bus", bus.URL, "--max-moments", "2")
	compared, redacted := 0, 0
	for k, m := range moments {
		then := client{
			kubectl: kubectl, kubeconfig: served.Kubeconfig, cache: filepath.Join(dir, fmt.Sprint("then-", k)),
			flags: []string{"--server", fmt.Sprintf("%s/at/rv:%d", served.URL, m.rev)},
		}
		of := map[int][]string{}
		for i := range m.answers {
			of[i] = commands[i]
		}
		got := then.answers(t, of)
		for i, answer := range m.answers {
			compared++
			values := redactedValues.FindAllString(got[i], -1)
			redacted += len(values)
			for _, value := range values {
				if strings.Contains(answer, value) {
					oracle.Fail(t, "moment %d (rv:%d): kubectl %s prints %s of the record", k, m.rev,
						strings.Join(commands[i], " "), value)
				}
			}
			if diff := cmp.Diff(redactedValues.ReplaceAllString(answer, "VALUE"),
				redactedValues.ReplaceAllString(got[i], "VALUE")); diff != "" {
				oracle.Fail(t, "moment %d (rv:%d): kubectl %s: -live +record\n%s", k, m.rev,
					strings.Join(commands[i], " "), diff)
			}
		}
		if k == len(moments)-1 {
			compareResources(t, &live, &then)
		}
	}
	if redacted == 0 {
		t.Error("no redacted value was compared")
	}
	t.Logf("%d answers of kubectl compared at %d moments, with %d redacted values", compared, len(moments), redacted)
}

// pastResources are the resources that the agent of TestKubectlAgainstThePast captures.
var pastResources = []string{
	"pods", "deployments.apps", "replicasets.apps", "services", "configmaps", "namespaces", "nodes", "resourcequotas",
	"limitranges",
	"jobs.batch", "ingresses.networking.k8s.io", "roles.rbac.authorization.k8s.io",
	"customresourcedefinitions.apiextensions.k8s.io",
	"storageclasses.storage.k8s.io", "apiservices.apiregistration.k8s.io", "gadgets.past.example.com",
	"gizmos.past.example.com", "widgets.e2e.kubecdc.dev",
	"statefulsets.apps", "daemonsets.apps", "cronjobs.batch", "persistentvolumes", "persistentvolumeclaims",
	"poddisruptionbudgets.policy",
	"horizontalpodautoscalers.autoscaling", "networkpolicies.networking.k8s.io",
	"rolebindings.rbac.authorization.k8s.io", "serviceaccounts", "secrets",
	"endpointslices.discovery.k8s.io", "leases.coordination.k8s.io", "priorityclasses.scheduling.k8s.io",
}

// compareResources compares the captured resources in `kubectl api-resources`. It ignores the
// verbs: the record is read-only.
func compareResources(t *testing.T, live, then *client) {
	t.Helper()
	verbs := regexp.MustCompile(`\S*get,\S*list\S*`)
	lines := func(c *client) []string {
		return strings.Split(
			verbs.ReplaceAllString(c.answer(t, []string{"api-resources", "-o", "wide", "--sort-by=name"}), "VERBS"),
			"\n")
	}
	want, captured := lines(live), 0
	for _, line := range lines(then) {
		if !slices.Contains(want, line) {
			oracle.Fail(t, "kubectl api-resources -o wide: only the record has %q", line)
		}
		if strings.Contains(line, " VERBS") && !strings.HasPrefix(line, "NAME ") {
			captured++
		}
	}
	if captured != len(pastResources) {
		t.Errorf("kubectl api-resources -o wide has %d resources of %d", captured, len(pastResources))
	}
}

// laterStep returns the changes before moment k, for the moments that only the long form has.
func laterStep(t *testing.T, live *client, k int) func() {
	text := fmt.Sprint(k)
	return func() {
		switch k % 5 {
		case 0:
			live.do(t, "", "scale", "-n", "shop", "deploy/web", "--replicas="+fmt.Sprint(1+k%4))
			live.do(t, "", "annotate", "sc", "fast",
				"storageclass.kubernetes.io/is-default-class="+fmt.Sprint(k%2 == 0), "--overwrite")
		case 1:
			live.do(t, "", "set", "image", "-n", "shop", "deploy/web", "app=web:"+text)
			live.do(t, "", "patch", "node", "node-1", "-p", `{"spec":{"unschedulable":`+fmt.Sprint(k%2 == 0)+`}}`)
		case 2:
			live.do(t, "", "patch", "gadget", "gear", "-n", "shop", "--type=merge", "-p",
				`{"spec":{"size":`+text+`,"color":"color-`+text+`"}}`)
			live.do(t, strings.ReplaceAll(shopGadgets, "gizmo-1", "gizmo-"+text), "apply", "--server-side",
				"--force-conflicts", "-f", "-")
		case 3:
			live.do(t, "", "create", "cm", "-n", "shop", "extra-"+text, "--from-literal=k="+text)
			live.do(t, "", "label", "cm", "-n", "shop", "extra-"+text, "app=web")
			live.do(t, "", "delete", "pods", "-n", "shop", "-l", "app=web", "--wait=false")
		case 4:
			live.do(t, "", "create", "job", "-n", "shop", "job-"+text, "--image=import:"+text)
			live.do(t, "", "patch", "ingress", "web", "-n", "shop", "--type=json", "-p",
				`[{"op":"remove","path":"/spec/rules/0"},{"op":"add","path":"/spec/rules/-","value":{"host":"h`+text+
					`.example.com"}}]`)
		}
	}
}

// pastCommands returns the kubectl commands that run at each moment.
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
		{"describe", "pods,deploy,svc,node", "-A", "--show-events=false"},
		{"describe", "ingress,job,rs", "-A", "--show-events=false"},
		{"get", "sts,ds,cj,pv,pvc,pdb,hpa", "-A", "-o", "wide"},
		{"get", "netpol,rolebindings,sa,secrets,endpointslices,leases,priorityclasses", "-A", "-o", "wide"},
		{"api-resources", "--namespaced", "--api-group=past.example.com"},
		{"get", "secrets", "-A", "-o", "yaml"},
		{"get", "secret/login", "-n", "shop", "-o", "jsonpath={.data}"},
		{"describe", "secrets", "-A"},
	}
}

// client runs kubectl against one cluster.
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
		t.Error(err)
		return ""
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

// answers returns what kubectl prints for some commands, by their index. It runs a few at a time.
func (c *client) answers(t *testing.T, commands map[int][]string) map[int]string {
	t.Helper()
	var mu sync.Mutex
	out := map[int]string{}
	var g errgroup.Group
	g.SetLimit(4)
	for i, args := range commands {
		g.Go(func() error {
			text := c.answer(t, args)
			mu.Lock()
			defer mu.Unlock()
			out[i] = text
			return nil
		})
	}
	_ = g.Wait()
	return out
}
