package answers_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/agent/withheld"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// applied is what GetForApply prints of one object, and its error.
func applied(
	t *testing.T, agent *config.Config, resource, apiVersion, kind, object string,
) (out, stderr string, err error) {
	t.Helper()
	return appliedTo(t, "", agent, resource, apiVersion, kind, object)
}

// appliedTo is applied into a namespace, "": its own.
func appliedTo(
	t *testing.T, namespace string, agent *config.Config, resource, apiVersion, kind, object string,
) (out, stderr string, err error) {
	t.Helper()
	lines := ""
	for _, line := range []struct{ typ, id, members, data string }{
		{
			"snapshot.started", "s1/started", `"scope":"` + resource + `"`,
			`"snapshot":"s1","objects":1,"resourceVersion":"5"`,
		},
		{
			"object.read", "u1/1/r/s1", `"namespace":"shop","name":"it","uid":"u1","op":"r"`,
			`"op":"r","resourceVersion":"5","snapshot":"s1","after":` + object,
		},
		{
			"snapshot.completed", "s1/completed", `"scope":"` + resource + `"`,
			`"snapshot":"s1","objects":1,"resourceVersion":"5"`,
		},
	} {
		plural, _, _ := strings.Cut(resource, ".")
		lines += `{"specversion":"1.0","id":"` + resource + "/" + line.id +
			`","source":"/kubernetes/x","type":"dev.kubecdc.` + line.typ +
			`","time":"2026-11-20T14:00:00Z","cluster":"x","apiversion":"` + apiVersion + `","kind":"` + kind +
			`","resource":"` + plural + `",` + line.members +
			`,"resourceversion":"5","sequence":"00000000000000000005","partitionkey":"k","data":{` + line.data + "}}\n"
	}
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted, err := record.NewSelection([]string{resource, "it"}, "shop", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var wrote *answer.Agent
	if agent != nil {
		wrote = withheld.By(agent)
	}
	var stdout, errors strings.Builder
	q := answers.New(&record.Record{Source: &fromfile.File{Path: path}}, wanted, printer.Format{Name: printer.YAML},
		&terminal.Output{Writer: &stdout}, &terminal.Output{Writer: &errors})
	if err := q.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = q.GetForApply(t.Context(), timeline.Now(time.Date(2026, 11, 20, 14, 1, 0, 0, time.UTC)), wrote, namespace)
	return stdout.String(), errors.String(), err
}

// --for-apply removes only fields that the server or a controller sets.
func TestForApply(t *testing.T) {
	const filled = `"uid":"u1","resourceVersion":"5","generation":3,"creationTimestamp":"2026-11-20T13:00:00Z","selfLink":"/x","managedFields":[{}]`
	for _, c := range []struct{ name, resource, apiVersion, kind, object, want string }{
		{
			"what the server fills in", "deployments.apps", "apps/v1", "Deployment",
			`{"metadata":{"name":"it",` + filled +
				`,"labels":{"a":"b"},"annotations":{"deployment.kubernetes.io/revision":"2","mine":"x"}},"spec":{"replicas":3},"status":{"replicas":3}}`,
			"metadata:\n  annotations:\n    mine: x\n  labels:\n    a: b\n  name: it\nspec:\n  replicas: 3\n",
		},
		{
			"annotations that are all the server's", "configmaps", "v1", "ConfigMap",
			`{"metadata":{"name":"it","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"data":{"key":"1"}}`,
			"data:\n  key: \"1\"\nmetadata:\n  name: it\n",
		},
		{
			"an address that was assigned", "services", "v1", "Service",
			`{"metadata":{"name":"it"},"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"],"type":"ClusterIP"}}`,
			"metadata:\n  name: it\nspec:\n  type: ClusterIP\n",
		},
		{
			"a headless Service", "services", "v1", "Service",
			`{"metadata":{"name":"it"},"spec":{"clusterIP":"None","clusterIPs":["None"]}}`,
			"metadata:\n  name: it\nspec:\n  clusterIP: None\n  clusterIPs:\n  - None\n",
		},
		{
			"the node of a Pod", "pods", "v1", "Pod",
			`{"metadata":{"name":"it"},"spec":{"nodeName":"n1","hostNetwork":true}}`,
			"metadata:\n  name: it\nspec:\n  hostNetwork: true\n",
		},
		{
			"a claim keeps its volume, and is not bound yet", "persistentvolumeclaims", "v1", "PersistentVolumeClaim",
			`{"metadata":{"name":"it","annotations":{"pv.kubernetes.io/bind-completed":"yes","pv.kubernetes.io/bound-by-controller":"yes","volume.kubernetes.io/selected-node":"n1",` +
				`"volume.beta.kubernetes.io/storage-provisioner":"x","volume.kubernetes.io/storage-provisioner":"x"}},"spec":{"volumeName":"pv-1"}}`,
			"metadata:\n  name: it\nspec:\n  volumeName: pv-1\n",
		},
		{
			"a volume waits for the claim of the same name", "persistentvolumes", "v1", "PersistentVolume",
			`{"metadata":{"name":"it","annotations":{"pv.kubernetes.io/bound-by-controller":"yes","pv.kubernetes.io/provisioned-by":"x"}},"spec":{"claimRef":{"name":"c","namespace":"shop","uid":"u","resourceVersion":"5"}}}`,
			"metadata:\n  annotations:\n    pv.kubernetes.io/provisioned-by: x\n  name: it\nspec:\n  claimRef:\n    name: c\n    namespace: shop\n",
		},
		{
			"a spec that is empty then", "namespaces", "v1", "Namespace",
			`{"metadata":{"name":"it"},"spec":{"finalizers":["kubernetes"]}}`, "metadata:\n  name: it\n",
		},
		{
			"an address that kubectl applied", "services", "v1", "Service",
			`{"metadata":{"name":"it","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"clusterIP\":\"10.0.0.7\"}}"}},"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"]}}`,
			"metadata:\n  name: it\nspec:\n  clusterIP: 10.0.0.7\n  clusterIPs:\n  - 10.0.0.7\n",
		},
		{
			"an address that a manager set", "services", "v1", "Service",
			`{"metadata":{"name":"it","managedFields":[{"manager":"x","fieldsV1":{"f:spec":{"f:clusterIP":{}}}}]},"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"]}}`,
			"metadata:\n  name: it\nspec:\n  clusterIP: 10.0.0.7\n  clusterIPs:\n  - 10.0.0.7\n",
		},
		{
			"what the scheduler and admission set in a Pod", "pods", "v1", "Pod",
			`{"metadata":{"name":"it","finalizers":["batch.kubernetes.io/job-tracking"]},"spec":{"priority":5,"preemptionPolicy":"Never","priorityClassName":"p","nodeName":"n","ephemeralContainers":[{}]}}`,
			"metadata:\n  name: it\nspec:\n  priorityClassName: p\n",
		},
		{
			"the finalizers of a deletion", "configmaps", "v1", "ConfigMap",
			`{"metadata":{"name":"it","deletionTimestamp":"2026-11-20T13:00:00Z","finalizers":["foregroundDeletion","example.com/mine"]}}`,
			"metadata:\n  finalizers:\n  - example.com/mine\n  name: it\n",
		},
		{
			"the rules of an aggregated role", "clusterroles.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1",
			"ClusterRole",
			`{"metadata":{"name":"it"},"aggregationRule":{},"rules":[{}]}`,
			"aggregationRule: {}\nmetadata:\n  name: it\n",
		},
		{
			"who asked for a certificate", "certificatesigningrequests.certificates.k8s.io", "certificates.k8s.io/v1",
			"CertificateSigningRequest",
			`{"metadata":{"name":"it"},"spec":{"request":"x","username":"a","uid":"b","groups":["c"],"extra":{}}}`,
			"metadata:\n  name: it\nspec:\n  request: x\n",
		},
		{
			"the token of another account", "secrets", "v1", "Secret",
			`{"metadata":{"name":"it","annotations":{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"u"}},"type":"kubernetes.io/service-account-token","data":{"token":"eA==","ca.crt":"eA==","mine":"eA=="}}`,
			"data:\n  mine: eA==\nmetadata:\n  annotations:\n    kubernetes.io/service-account.name: a\n  name: it\ntype: kubernetes.io/service-account-token\n",
		},
		{
			"the selector of a Job", "jobs.batch", "batch/v1", "Job",
			`{"metadata":{"name":"it","labels":{"batch.kubernetes.io/job-name":"it","a":"b"}},"spec":{"selector":{"matchLabels":{"x":"y"}},"template":{"metadata":{"labels":{"controller-uid":"u1"}},"spec":{}}}}`,
			"metadata:\n  labels:\n    a: b\n  name: it\nspec:\n  template:\n    metadata: {}\n    spec: {}\n",
		},
		{
			"a Job with a selector of its own", "jobs.batch", "batch/v1", "Job",
			`{"metadata":{"name":"it"},"spec":{"manualSelector":true,"selector":{"matchLabels":{"x":"y"}}}}`,
			"metadata:\n  name: it\nspec:\n  manualSelector: true\n  selector:\n    matchLabels:\n      x: \"y\"\n",
		},
		{
			"a number that is no float", "configmaps", "v1", "ConfigMap",
			`{"metadata":{"name":"it"},"n":9007199254740993}`,
			"metadata:\n  name: it\n\"n\": 9007199254740993\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !json.Valid([]byte(c.object)) {
				t.Fatal("the object is no JSON")
			}
			out, _, err := applied(t, nil, c.resource, c.apiVersion, c.kind, c.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(c.want, out); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Standard error says what was left out, or has to be there.
func TestForApplySaysWhatPeopleHaveToKnow(t *testing.T) {
	for _, c := range []struct{ resource, kind, object, said, out string }{
		{
			"services", "Service",
			`{"metadata":{"name":"it"},"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"]}}`,
			"does not show whether the server assigned it: add spec.clusterIP if you need it: service/it -n shop (10.0.0.7)\n",
			"metadata:\n  name: it\n",
		},
		{
			"services", "Service",
			`{"metadata":{"name":"it","managedFields":[{"fieldsV1":{"f:spec":{"f:ports":{}}}}]},"spec":{"clusterIP":"10.0.0.7"}}`,
			"", "metadata:\n  name: it\n",
		},
		{
			"pods", "Pod", `{"metadata":{"name":"it"},"spec":{"ephemeralContainers":[{"name":"debug"}]}}`,
			"without ephemeral containers, which an apply cannot create: pod/it -n shop\n", "metadata:\n  name: it\n",
		},
		{
			"pods", "Pod", `{"metadata":{"name":"it","annotations":{"kubernetes.io/config.mirror":"x"}}}`,
			"left out, because the control plane or a kubelet makes them: pod/it -n shop\n", "",
		},
		{
			"pods", "Pod", `{"metadata":{"name":"it","ownerReferences":[{"uid":"u1","controller":true}]}}`,
			"left out, because a controller makes them from others of these objects: pod/it -n shop\n", "",
		},
		{
			"pods", "Pod", `{"metadata":{"name":"it","ownerReferences":[{"uid":"u0","controller":true}]}}`,
			"without owner references", "metadata:\n  name: it\n",
		},
		{
			"configmaps", "ConfigMap", `{"metadata":{"name":"it","deletionTimestamp":"2026-11-20T13:00:00Z"}}`,
			"were being deleted at that moment: configmap/it -n shop\n", "metadata:\n  name: it\n",
		},
		{
			"persistentvolumeclaims", "PersistentVolumeClaim",
			`{"metadata":{"name":"it"},"spec":{"volumeName":"pv-1"}}`,
			"bind to the volumes that they had. One that is Released has to be freed first (kubectl patch pv NAME --type merge " +
				`-p '{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}'): persistentvolumeclaim/it -n shop (pv-1)` +
				"\n",
			"metadata:\n  name: it\nspec:\n  volumeName: pv-1\n",
		},
	} {
		out, stderr, err := applied(t, nil, c.resource, "v1", c.kind, c.object)
		_, notes, _ := strings.Cut(stderr, "\n") // after the certainty
		if err != nil || out != c.out || !strings.Contains(stderr, c.said) ||
			c.said == "" && strings.Contains(notes, "without") {
			t.Errorf("%s: %v, %q, standard error: %s, want %q", c.object, err, out, stderr, c.said)
		}
	}
}

func TestForApplyLeavesOut(t *testing.T) {
	t.Run("owner references, and says so", func(t *testing.T) {
		out, stderr, err := applied(t, nil, "configmaps", "v1", "ConfigMap",
			`{"metadata":{"name":"it","ownerReferences":[{"uid":"u0"}]}}`)
		if err != nil || out != "metadata:\n  name: it\n" || !strings.Contains(stderr, "without owner references") ||
			!strings.Contains(stderr, "configmap/it -n shop") {
			t.Errorf("got %q, %q, %v", out, stderr, err)
		}
	})
	t.Run("objects with redacted values", func(t *testing.T) {
		out, _, err := applied(t, nil, "configmaps", "v1", "ConfigMap",
			`{"metadata":{"name":"it"},"data":{"key":"hmac-sha256:00c0ffee:x"}}`)
		if err == nil || !strings.Contains(err.Error(), "configmap/it -n shop") || out != "" {
			t.Errorf("got %q, %v, want an error that names the object", out, err)
		}
	})
}

// An object that lacks a value because the agent removed it must not be applied: that would delete
// the value in the cluster.
func TestForApplyLeavesOutObjectsThatMayLackValues(t *testing.T) {
	const env = `{"metadata":{"name":"it"},"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"PASSWORD"}]}]}}}}`
	const noEnv = `{"metadata":{"name":"it"},"spec":{"template":{"spec":{"containers":[{"name":"app"}]}}}}`
	const path = "spec.template.spec.containers[*].env[*].value"
	agent := func(mode config.RedactionMode, strip ...string) *config.Config {
		c := config.Default()
		c.Redaction.Mode, c.Strip = mode, append(c.Strip, strip...)
		c.Watch = []config.Rule{{Resources: []config.ResourcePattern{{
			Resource: "deployments",
			Group:    "apps",
		}}, Redact: []string{path}}}
		return c
	}
	for _, c := range []struct {
		name   string
		agent  *config.Config
		object string
		lacks  string // "": it is printed
	}{
		{"a value that was redacted", agent(config.RedactRemove), env, path},
		{"no place for the value", agent(config.RedactRemove), noEnv, ""},
		{"hashes show", agent(config.RedactHash), env, ""},
		{"a value that was stripped", agent(config.RedactHash, "spec.paused"), noEnv, "spec.paused"},
		{"what an apply does without", agent(config.RedactHash, "status", "metadata.generation"), noEnv, ""},
		{"no rules of the resource", config.Default(), env, ""},
		{"an unknown configuration", nil, env, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, stderr, err := applied(t, c.agent, "deployments.apps", "apps/v1", "Deployment", c.object)
			switch {
			case c.lacks == "" && (err != nil || !strings.Contains(out, "name: app")):
				t.Errorf("got %q, %v, want the object", out, err)
			case c.lacks != "" &&
				(err == nil || out != "" || !strings.Contains(err.Error(), "deployment.apps/it -n shop ("+c.lacks+")")):
				t.Errorf("got %q, %v, want an error that names the object and %s", out, err, c.lacks)
			case strings.Contains(stderr, "may lack values") != (c.agent == nil):
				t.Errorf("standard error: %s", stderr)
			}
		})
	}
}
