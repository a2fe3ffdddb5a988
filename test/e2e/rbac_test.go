package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// rbacCase is a configuration, and the resources that are written to see its events.
type rbacCase struct {
	name   string
	watch  string   // YAML, the value of watch
	flags  []string // of kubecdc rbac; if there are none, "--config" is added
	writes []string // resources, see changeWritten; in namespace rbac-shop
	roles  []string // the roles that are printed, as kind/namespace
	rules  int      // in all roles, two of them for the checkpoint; 0: at least one for each role
}

// rbacCheckpoint is the default checkpoint of an agent in a pod of rbac-bank. These agents run
// outside of pods, so it is configured.
const rbacCheckpoint = "{configMap: {namespace: rbac-bank, name: kubecdc-checkpoint}}"

func rbacCases(p *world.Plane) []rbacCase {
	const all = `
- resources: ["*"]
  except: [events, leases.coordination.k8s.io]`
	return []rbacCase{
		{
			name: "defaults", watch: all, flags: []string{}, writes: []string{"configmaps", "secrets", oracle.Widgets},
			roles: []string{"ClusterRole/", "Role/rbac-bank"}, rules: 4,
		},
		{
			name: "discovered", watch: all, flags: []string{"--kubeconfig", p.Kubeconfig}, writes: []string{
				"configmaps", "secrets", oracle.Widgets,
			},
			roles: []string{"ClusterRole/", "Role/rbac-bank"},
		},
		{
			name: "few", watch: `
- resources: [configmaps, deployments, namespaces, events]
- resources: [widgets]
- resources: ["*.coordination.k8s.io"]`,
			writes: []string{"configmaps", oracle.Widgets, "events"},
			// "", apps, coordination.k8s.io, widgets of every group, definitions (two), get
			roles: []string{"ClusterRole/", "Role/rbac-bank"}, rules: 9,
		},
		{
			name: "namespaces", watch: `
- resources: [configmaps, secrets, widgets.e2e.kubecdc.dev]
  namespaces: [rbac-shop, rbac-bank]`,
			writes: []string{"configmaps", "secrets", oracle.Widgets},
			roles:  []string{"ClusterRole/", "Role/rbac-bank", "Role/rbac-shop"}, rules: 9,
		},
		{
			// One informer reads for all rules that can select a resource.
			name: "several", watch: `
- resources: [configmaps, secrets]
  namespaces: [rbac-shop]
  labelSelector: team=payments
- resources: [configmaps, widgets.e2e.kubecdc.dev]
  namespaces: [rbac-shop, rbac-bank]
  fieldSelector: metadata.name=written
- resources: [services]
  namespaces: [rbac-shop]
- resources: [services]
  fieldSelector: metadata.name=written`,
			writes: []string{"configmaps", "secrets", oracle.Widgets},
			roles:  []string{"ClusterRole/", "Role/rbac-bank", "Role/rbac-shop"}, rules: 10,
		},
		{
			name: "selectors", watch: `
- resources: [configmaps, widgets.e2e.kubecdc.dev]
  labelSelector: team=payments
  namespaces: ["rbac-*", "!rbac-bank"]
- resources: [secrets]
  fieldSelector: metadata.name=written,metadata.namespace!=rbac-bank
- resources: [services]
  fieldSelector: metadata.name=written
  namespaces: [rbac-shop]`,
			writes: []string{"configmaps", oracle.Widgets, "secrets"},
			roles:  []string{"ClusterRole/", "Role/rbac-bank", "Role/rbac-shop"}, rules: 9,
		},
	}
}

// TestPrintedAccessIsEnoughAndNoMore applies the output of `kubecdc rbac`, and nothing else, for a
// ServiceAccount and runs the agent as that account. The API server's audit log shows which
// requests were refused, and which permissions the agent used.
func TestPrintedAccessIsEnoughAndNoMore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	path := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := world.StartPlane(t, controlplane.Options{
		NoControllerManager: true,
		APIServerArgs:       []string{"--audit-policy-file=" + policy, "--audit-log-path=" + path},
	})
	p.NewNamespace(t, "rbac-shop")
	p.NewNamespace(t, "rbac-bank")
	log := &auditLog{path: path}
	missed := make(map[string]bool)
	for _, c := range rbacCases(p) {
		t.Run(c.name, func(t *testing.T) { c.test(t, p, log, missed) })
	}
}

// test also runs the agent without one rule of each shape that is not in missed yet.
func (c rbacCase) test(t *testing.T, p *world.Plane, log *auditLog, missed map[string]bool) {
	account := "kubecdc-" + c.name
	user := "system:serviceaccount:rbac-bank:" + account
	log.user = user
	config := filepath.Join(t.TempDir(), "kubecdc.yaml")
	if err := os.WriteFile(config,
		[]byte("apiVersion: kubecdc.dev/v1\nwatch:"+c.watch+"\ncheckpoint: "+rbacCheckpoint+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"rbac", "--name", account, "--service-account", "rbac-bank/" + account}, c.flags...)
	if c.flags == nil {
		args = append(args, "--config", config)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), args...)
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubecdc %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	access := applyAccess(t, p, printed)
	kubeconfig := serviceAccount(t, p, "rbac-bank", account)
	t.Logf("printed:\n%s", printed)

	var roles []string
	rules := 0
	for _, r := range access {
		roles = append(roles, r.Kind+"/"+r.Metadata.Namespace)
		rules += len(r.Rules)
		for _, a := range r.atoms() {
			awaitReview(t, p, user, a, true)
		}
	}
	if !slices.Equal(roles, c.roles) || c.rules != 0 && rules != c.rules {
		t.Errorf("printed %d rules in %v, want %d in %v", rules, roles, c.rules, c.roles)
	}

	// Enough: events flow and nothing is refused.
	bus := world.StartBus(t)
	sub, err := bus.Connect(t).SubscribeSync("kubecdc.*.object.>")
	if err != nil {
		t.Fatal(err)
	}
	forgetCheckpoint(t, p)
	log.skip()
	a := world.StartAgent(t, p, world.AgentConfig{
		Watch:      c.watch,
		Bus:        bus,
		Kubeconfig: kubeconfig,
		Checkpoint: rbacCheckpoint,
	})
	a.Ready(t)
	for _, resource := range c.writes {
		changeWritten(t, p, resource)
		awaitWritten(t, sub, resource)
	}
	status, err := a.Get(t.Context(), "/readyz")
	if err != nil || strings.Contains(status, "forbidden") {
		t.Errorf("/readyz (%v):\n%s", err, status)
	}
	if n, err := a.Metric(t.Context(), "kubecdc_informer_errors_total", `_forbidden"`); err == nil && n > 0 {
		t.Errorf("the agent counts %v requests that were forbidden", n)
	}
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
	a.Again(t) // A restart lists what the first start has watched.
	a.Ready(t)
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent that was started again, asked to stop: %v", err)
	}
	asked := log.requests(t)
	if refused := refusals(asked); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}

	// No more: every verb on every resource of every rule was used, and a rule allows each request.
	for _, r := range access {
		for _, a := range r.atoms() {
			if !slices.ContainsFunc(asked, a.allows) {
				t.Errorf("%s allows %+v, which the agent did not ask for", r.Kind, a)
			}
		}
	}
	for _, q := range asked {
		if q.ObjectRef != nil && !slices.ContainsFunc(access, func(r printedRole) bool {
			return slices.ContainsFunc(r.atoms(), func(a atom) bool { return a.allows(q) })
		}) {
			t.Errorf("the agent asked for %s %s, which no rule is there for", q.Verb, q.RequestURI)
		}
	}

	// Without a rule, some request is refused: this shows that the checks above can fail. The audit
	// log has already shown that each rule is needed.
	for _, r := range access {
		for i, rule := range r.Rules {
			shape := r.shape(rule)
			if missed[shape] && !long() {
				continue
			}
			missed[shape] = true
			t.Logf("without %s", shape)
			replaceRules(t, p, r, slices.Delete(slices.Clone(r.Rules), i, i+1))
			awaitReview(t, p, user, r.atomsOf(rule)[0], false)
			forgetCheckpoint(t, p)
			log.skip()
			runUntilRefused(t, p, config, kubeconfig, log)
		}
		replaceRules(t, p, r, r.Rules)
		for _, a := range r.atoms() {
			awaitReview(t, p, user, a, true)
		}
	}
}

// shape returns what similar rules have in common: the kind of role, the verbs, the number of
// names, and whether the rest is a wildcard.
func (r *printedRole) shape(rule printedRule) string {
	all := func(list []string) string {
		if slices.Contains(list, "*") {
			return "all"
		}
		return "some"
	}
	resources := all(rule.Resources)
	for _, own := range []string{"namespaces", "customresourcedefinitions", "apiservices"} {
		// Read for the agent itself.
		if slices.Equal(rule.Resources, []string{own}) {
			resources = own
		}
	}
	return fmt.Sprintf("%s: %v of %s in %s groups, %d named", r.Kind, rule.Verbs, resources, all(rule.APIGroups),
		len(rule.ResourceNames))
}

// printedRole is a Role or ClusterRole as it was printed.
type printedRole struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
	} `json:"metadata"`
	Rules []printedRule `json:"rules"`
}

type printedRule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

func (r *printedRole) collection() string {
	return world.Collection(strings.ToLower(r.Kind)+"s.rbac.authorization.k8s.io", r.Metadata.Namespace)
}

// atom is the smallest part of a rule.
type atom struct{ Namespace, Verb, Group, Resource, Name string }

func (r *printedRole) atoms() []atom {
	var out []atom
	for _, rule := range r.Rules {
		out = append(out, r.atomsOf(rule)...)
	}
	return out
}

func (r *printedRole) atomsOf(rule printedRule) []atom {
	var out []atom
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					out = append(out, atom{r.Metadata.Namespace, verb, group, resource, name})
				}
			}
		}
	}
	return out
}

// allows reports whether RBAC allows the request.
func (a atom) allows(q request) bool {
	o := q.ObjectRef
	return o != nil && a.Verb == q.Verb && (a.Namespace == "" || a.Namespace == o.Namespace) &&
		(a.Group == "*" || a.Group == o.APIGroup) && (a.Resource == "*" || a.Resource == o.Resource) &&
		(a.Name == "" || a.Name == o.Name)
}

// applyAccess creates the objects of the YAML as they are, and returns the roles among them.
func applyAccess(t *testing.T, p *world.Plane, printed []byte) []printedRole {
	t.Helper()
	var roles []printedRole
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(printed), 4096)
	for {
		var raw json.RawMessage
		if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
			return roles
		} else if err != nil {
			t.Fatal(err)
		}
		var r printedRole
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		// With fieldValidation, an unknown or repeated field is rejected instead of ignored.
		if _, err := p.API.Create(t.Context(), r.collection()+"?fieldValidation=Strict", raw); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(r.Kind, "Binding") {
			roles = append(roles, r)
		}
	}
}

func replaceRules(t *testing.T, p *world.Plane, r printedRole, rules []printedRule) {
	t.Helper()
	if rules == nil {
		rules = []printedRule{}
	}
	patch := obj{"rules": rules}
	if _, err := p.API.MergePatch(t.Context(), r.collection()+"/"+r.Metadata.Name, patch); err != nil {
		t.Fatal(err)
	}
}

// awaitReview waits until the API server's authorizer, which watches roles, returns the wanted
// decision.
func awaitReview(t *testing.T, p *world.Plane, user string, a atom, want bool) {
	t.Helper()
	review := obj{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": obj{"user": user, "groups": []string{
			"system:serviceaccounts", "system:authenticated",
		}, "resourceAttributes": obj{
			"verb": a.Verb, "group": a.Group, "resource": a.Resource, "namespace": a.Namespace, "name": a.Name,
		}},
	}
	wait.Eventually(t, 30*time.Second, func() error {
		raw, err := p.API.Create(t.Context(), "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
		if err != nil {
			return err
		}
		var answer struct{ Status struct{ Allowed bool } }
		if err := json.Unmarshal(raw, &answer); err != nil {
			return err
		}
		if answer.Status.Allowed != want {
			return fmt.Errorf("%+v of %s: allowed is %t", a, user, answer.Status.Allowed)
		}
		return nil
	})
}

// serviceAccount creates a ServiceAccount and returns a kubeconfig with its token.
func serviceAccount(t *testing.T, p *world.Plane, namespace, name string) string {
	t.Helper()
	accounts := world.Collection("serviceaccounts", namespace)
	if _, err := p.API.Create(t.Context(), accounts, obj{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": obj{"name": name},
	}); err != nil {
		t.Fatal(err)
	}
	raw, err := p.API.Create(t.Context(), accounts+"/"+name+"/token", obj{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": obj{},
	})
	var request struct{ Status struct{ Token string } }
	if err == nil {
		err = json.Unmarshal(raw, &request)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.LoadFromFile(p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for user := range cfg.AuthInfos {
		cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// changeWritten creates the object "written" of the resource, adds a label, removes it and deletes
// the object. Under a label selector, the agent then has to find out whether to send "deleted" or
// "left".
func changeWritten(t *testing.T, p *world.Plane, resource string) {
	t.Helper()
	const namespace, name = "rbac-shop", "written"
	o := obj{"apiVersion": "v1", "metadata": obj{"name": name, "namespace": namespace, "labels": obj{
		"team": "payments",
	}}}
	switch resource {
	case "configmaps":
		o["kind"], o["data"] = "ConfigMap", obj{"key": "value"}
	case "secrets":
		o["kind"], o["stringData"] = "Secret", obj{"key": world.SecretMark}
	case "events":
		o["kind"], o["involvedObject"] = "Event", obj{"kind": "Pod", "namespace": namespace, "name": "any"}
	case oracle.Widgets:
		o["apiVersion"], o["kind"] = oracle.WidgetsGroup+"/v1", "Widget"
	default:
		t.Fatalf("no object of %s to write", resource)
	}
	path := world.Collection(resource, namespace)
	if _, err := p.API.Create(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	path += "/" + name
	for _, team := range []any{nil, "payments", "payments-2"} {
		if _, err := p.API.MergePatch(t.Context(), path, obj{"metadata": obj{"labels": obj{
			"team": team,
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.API.Remove(t.Context(), path); err != nil {
		t.Fatal(err)
	}
}

// awaitWritten waits for the last record of changeWritten, which reports the object as deleted or
// no longer selected.
func awaitWritten(t *testing.T, sub *nats.Subscription, resource string) {
	t.Helper()
	plural, group := oracle.ObjectKey{Resource: resource}.Split()
	if group == "" {
		group = "core"
	}
	subject := fmt.Sprintf(".object.%s.%s.rbac-shop.written", strings.ReplaceAll(group, ".", "_"), plural)
	var ops string
	for {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatalf("%s: %v; operations so far: %q", subject, err, ops)
		}
		if !strings.HasSuffix(m.Subject, subject) {
			continue
		}
		var ev struct{ Op string }
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			t.Fatal(err)
		}
		ops += ev.Op
		if ev.Op == "d" || strings.Count(ops, "l") == 2 {
			break
		}
	}
	if !strings.HasPrefix(ops, "c") || len(ops) < 4 {
		t.Errorf("%s: operations %q", subject, ops)
	}
}

// forgetCheckpoint deletes the checkpoint, so that the next agent creates it.
func forgetCheckpoint(t *testing.T, p *world.Plane) {
	t.Helper()
	err := p.API.Remove(t.Context(), world.Collection("configmaps", "rbac-bank")+"/kubecdc-checkpoint")
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// runUntilRefused runs an agent until the API server has refused a request, which the agent must
// report.
func runUntilRefused(t *testing.T, p *world.Plane, config, kubeconfig string, log *auditLog) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = fmt.Appendf(text, "bus: {stdout: {}}\nserver: {address: %q}\n", "127.0.0.1:"+strconv.Itoa(world.FreePort(t)))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(t.TempDir(), "agent.log")
	stderr, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), build.SharedAgent(t), "run", "--config", file,
		"--kubeconfig", kubeconfig)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	cmd.Stderr = stderr
	agent, err := world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Kill()
	wait.Eventually(t, time.Minute, func() error {
		if len(refusals(log.requests(t))) == 0 {
			return errors.New("nothing was refused")
		}
		text, err := os.ReadFile(said)
		if err == nil && !bytes.Contains(text, []byte("forbidden")) && !bytes.Contains(text, []byte("does not grant")) {
			err = errors.New("the agent does not say that something is forbidden")
		}
		return err
	})
}

// auditLog holds the API server's audit events of one user since skip.
type auditLog struct {
	path   string
	user   string
	since  time.Time
	offset int64 // The log was read up to here.
	read   []request
}

// request is an event of the audit log (audit.k8s.io/v1).
type request struct {
	Verb       string
	RequestURI string
	User       struct{ Username string }
	ObjectRef  *struct{ Resource, Namespace, Name, APIGroup string }

	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
}

// skip discards the requests that were received until now, including those that are logged later.
func (l *auditLog) skip() { l.since, l.read = time.Now(), nil }

// requests returns the user's requests since skip.
func (l *auditLog) requests(t *testing.T) []request {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, l.offset, math.MaxInt64-l.offset))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		l.offset += int64(len(line))
		var q request
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatalf("audit log: %v: %s", err, line)
		}
		if q.User.Username == l.user && q.RequestReceivedTimestamp.After(l.since) {
			l.read = append(l.read, q)
		}
	}
	return l.read
}

// refusals returns the requests that were answered with 403.
func refusals(all []request) []string {
	var out []string
	for _, q := range all {
		if q.ResponseStatus.Code == 403 {
			out = append(out, q.Verb+" "+q.RequestURI)
		}
	}
	return out
}
