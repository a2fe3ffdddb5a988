package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// restoredObjects are further objects of TestForApplyRestores: of each kind that an apply treats in
// its own way.
const restoredObjects = `
apiVersion: v1
kind: Service
metadata: {name: fixed, namespace: shop}
spec: {clusterIP: %s, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tool, namespace: shop}
spec: {priorityClassName: urgent, containers: [{name: app, image: "tool:1"}]}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old, namespace: shop-b}
spec: {replicas: 1, selector: {app: old}, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: app, image: "old:1"}]}}}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: shop, annotations: {kubernetes.io/service-account.name: default}}
type: kubernetes.io/service-account-token
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: shop-b}
spec: {limits: [{type: Container, default: {cpu: "1"}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, namespace: shop-b}
spec: {hard: {pods: "100"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gathered}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {gathered: "yes"}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part, labels: {gathered: "yes"}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: gathered}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gathered}
subjects: [{kind: ServiceAccount, name: robot, namespace: shop}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
- name: guard.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [endpoints]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: policy}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "true"}]
---
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: robot}
spec: {signerName: example.com/robot, usages: [client auth], request: %s}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandbox}
handler: sandbox
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.example.com}
spec: {attachRequired: true}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: robots}
spec: {type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Reject}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outside, namespace: shop, labels: {kubernetes.io/service-name: outside}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx}
spec: {controller: example.com/nginx}
`

// TestForApplyRestores takes the objects of a moment, of every kind, and applies them to the
// cluster that they are of and to an empty one. A second apply must change nothing.
func TestForApplyRestores(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	addresses := []string{"--service-cluster-ip-range=10.77.0.0/16"}
	// A node without a kubelet gets taints after a while, which would be a change by another.
	patient := []string{"--node-monitor-grace-period=24h", "--node-startup-grace-period=24h"}
	p := world.StartPlane(t, controlplane.Options{APIServerArgs: addresses, ControllerManagerArgs: patient})
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	if err := p.WriteKubectl(kubectl); err != nil {
		t.Fatal(err)
	}
	live := client{kubectl: kubectl, kubeconfig: p.Kubeconfig, cache: filepath.Join(dir, "live")}
	live.do(t, shopObjects, "apply", "--server-side", "-f", "-")
	live.do(t, "", "wait", "--for=condition=Established", "crd/gadgets.past.example.com", "crd/gizmos.past.example.com")
	live.do(t, shopGadgets, "apply", "--server-side", "-f", "-")
	live.do(t, "", "wait", "--for=create", "-n", "shop", "serviceaccount/default")
	live.do(t, "", "wait", "--for=create", "-n", "shop-b", "serviceaccount/default")
	live.do(t, fmt.Sprintf(restoredObjects, "10.77.3.3", signingRequest(t)), "apply", "--server-side", "-f", "-")
	live.do(t, "", "patch", "-n", "shop", "pod/tool", "--subresource=ephemeralcontainers", "-p",
		`{"spec":{"ephemeralContainers":[{"name":"debug","image":"debug:1","targetContainerName":"app"}]}}`)
	live.do(t, "", "delete", "-n", "shop", "secret/login", "secret/empty") // they look like redacted ones
	live.waitBound(t)
	live.do(t, "", "wait", "--for=jsonpath={.status.replicas}=3", "-n", "shop", "deploy/web", "--timeout=60s")

	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [\"*\"]\n    except: [events, events.events.k8s.io, leases.coordination.k8s.io]",
		Extra: "redaction: {secrets: false}\nstrip: [\"metadata.managedFields[*].time\"]",
	})
	a.Captured(t)
	cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "all", "--for-apply", "--bus", bus.URL)
	var said bytes.Buffer
	cmd.Stderr = &said
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	manifests := string(raw)
	for _, want := range []string{
		"without ephemeral containers, which an apply cannot create: pod/tool -n shop\n",
		"need a CustomResourceDefinition that is among the objects",
		"left out, because a controller makes them from others of these objects:",
		"configmap/kube-root-ca.crt -n shop",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("standard error lacks %q: %s", want, said.String())
		}
	}
	for _, unwanted := range []string{
		"ephemeralContainers", "ownerReferences", "resourceVersion: \"", "\n  uid:", "\nstatus:",
	} {
		if strings.Contains(manifests, unwanted) {
			t.Errorf("the manifests have %q", unwanted)
		}
	}

	t.Run("the cluster itself", func(t *testing.T) {
		live.applyUntilUnchanged(t, manifests, 2)
	})
	t.Run("an empty cluster", func(t *testing.T) {
		empty := world.StartPlane(t, controlplane.Options{APIServerArgs: addresses, ControllerManagerArgs: patient})
		restored := client{kubectl: kubectl, kubeconfig: empty.Kubeconfig, cache: filepath.Join(dir, "empty")}
		// The first apply does not find the custom resources.
		if _, err := restored.apply(t, manifests); err != nil &&
			!strings.Contains(err.Error(), "ensure CRDs are installed first") {
			t.Fatal(err)
		}
		restored.do(t, "", "wait", "--for=condition=Established", "crd/gadgets.past.example.com",
			"crd/gizmos.past.example.com")
		restored.applyUntilUnchanged(t, manifests, 3)
		restored.waitBound(t)
		address := restored.do(t, "", "get", "-n", "shop", "svc/fixed", "-o", "jsonpath={.spec.clusterIP}")
		if address != "10.77.3.3" {
			t.Errorf("the cluster IP that the user had set is %s", address)
		}
		if got := restored.do(t, "", "get", "-n", "shop", "svc/web", "-o", "jsonpath={.spec.clusterIP}"); got == "" {
			t.Error("a Service has no cluster IP")
		}
		kinds := strings.Fields(
			restored.do(t, manifests, "get", "-f", "-", "-o", "jsonpath={range .items[*]}{.kind}{\"\\n\"}{end}"))
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
		if len(kinds) < 40 {
			t.Errorf("objects of %d kinds: %s", len(kinds), kinds)
		}
	})
}

// signingRequest returns a request for a certificate, as the API has it.
func signingRequest(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: "robot",
	}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// apply applies manifests, and returns the lines about the objects that were not as they should be.
func (c *client) apply(t *testing.T, manifests string) (changed []string, err error) {
	t.Helper()
	cmd := c.command(t.Context(), []string{"apply", "-f", "-"})
	cmd.Stdin = strings.NewReader(manifests)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl apply: %w: %s", err, said.String())
	}
	for line := range strings.Lines(string(out)) {
		// kubectl sends the selector of a PodDisruptionBudget each time, although it is the same.
		isSame := strings.HasSuffix(line, " unchanged\n") || line == "poddisruptionbudget.policy/web configured\n"
		line = strings.TrimSpace(line)
		if !isSame {
			changed = append(changed, line)
		}
	}
	return changed, err
}

// applyUntilUnchanged applies manifests. Each apply must succeed, and one of a number of them must
// change nothing.
func (c *client) applyUntilUnchanged(t *testing.T, manifests string, times int) {
	t.Helper()
	var changed []string
	for range times {
		var err error
		changed, err = c.apply(t, manifests)
		if err != nil {
			t.Fatal(err)
		}
		if len(changed) == 0 {
			return
		}
	}
	t.Errorf("apply number %d changes: %q", times, changed)
}

// waitBound waits until the claim disk and the volume disk are bound to each other.
func (c *client) waitBound(t *testing.T) {
	t.Helper()
	wait.Eventually(t, 60*time.Second, func() error {
		claim := c.do(t, "", "get", "-n", "shop", "pvc/disk", "-o",
			"jsonpath={.status.phase} {.spec.volumeName} {.metadata.uid}")
		volume := c.do(t, "", "get", "pv/disk", "-o",
			"jsonpath={.status.phase} {.spec.claimRef.name} {.spec.claimRef.uid}")
		if claim != volume || !strings.HasPrefix(claim, "Bound disk ") {
			return errors.New("claim: " + claim + ", volume: " + volume)
		}
		return nil
	})
}
