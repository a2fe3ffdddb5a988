package chart_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/test/chart"
)

// workload is a Deployment or DaemonSet of the chart with its related objects.
type workload struct {
	object    object
	pod       object // its template
	container object
	file      string // the agent's configuration
	config    object
}

// workloads returns those of a release, the Deployment first.
func workloads(t *testing.T, all []object) []*workload {
	t.Helper()
	var found []*workload
	for _, o := range append(ofKind(all, "Deployment"), ofKind(all, "DaemonSet")...) {
		w := &workload{object: o, pod: at(o, "spec", "template").(object)}
		w.container = items(w.pod, "spec", "containers")[0].(object)
		for _, v := range items(w.pod, "spec", "volumes") {
			if text(v, "name") == "config" {
				kept := named(all, "ConfigMap", text(v, "configMap", "name"))
				w.file = text(kept, "data", "kubecdc.yaml")
			}
		}
		if err := yaml.UnmarshalStrict([]byte(w.file), &w.config); err != nil || w.file == "" {
			t.Fatalf("configuration of %s: %v\n%s", text(o, "metadata", "name"), err, w.file)
		}
		found = append(found, w)
	}
	return found
}

func (w *workload) name() string { return text(w.object, "metadata", "name") }

// env returns the literal variables of the container, in the form of os/exec.
func (w *workload) env() []string {
	var env []string
	for _, e := range items(w.container, "env") {
		if value := text(e, "value"); value != "" {
			env = append(env, text(e, "name")+"="+value)
		}
	}
	return env
}

// Every file of values renders to consistent manifests, to configurations that the agent accepts,
// and to the roles that `kubecdc rbac` prints for them.
func TestMatrix(t *testing.T) {
	h, a := newHelm(t), buildAgent(t)
	files := valuesFiles(t, "values")
	examples := append(valuesFiles(t, "../../examples/values"), valuesFiles(t, "../../examples/audit")...)
	if len(files) < 15 || len(examples) < 8 {
		t.Fatalf("the matrix has %d files of values, and %d examples", len(files), len(examples))
	}
	for _, f := range append(files, examples...) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if _, err := chart.Lint(t.Context(), h.path, "--values", f.path, "--namespace", namespace); err != nil {
				t.Error(err)
			}
			all, notes := h.install(t, f.release(), "--values", f.path)
			checkNames(t, all)
			checkNotes(t, all, f.name, notes)
			found := workloads(t, all)
			if len(found) == 0 {
				t.Fatal("nothing runs an agent")
			}
			for _, w := range found {
				env := append(w.env(), f.head["env"]) // the variables that Secrets provide
				a.run(t, w.file, env, "config", "check", "-")
				checkPod(t, all, w)
				checkRoles(t, a, env, all, w)
			}
		})
	}
}

// checkNotes checks that the notes warn if the roles allow everything, and only then.
func checkNotes(t *testing.T, all []object, name, notes string) {
	t.Helper()
	var everything bool
	for _, o := range append(ofKind(all, "ClusterRole"), ofKind(all, "Role")...) {
		for _, r := range items(o, "rules") {
			everything = everything ||
				slices.Contains(items(r, "apiGroups"), any("*")) && slices.Contains(items(r, "resources"), any("*"))
		}
	}
	configured := slices.Contains(
		[]string{"everything", "everything-in-namespaces", "both-everything", "both-in-namespaces"}, name)
	if everything != configured {
		t.Errorf("the roles allow everything: %v, and config.watch has \"*\": %v", everything, configured)
	}
	if warned := strings.Contains(notes, "(*/*)"); warned != everything {
		t.Errorf("the roles allow everything: %v, and NOTES say so: %v\n%s", everything, warned, notes)
	}
	for _, wrong := range []string{"%!", "<no value>", "<nil>"} {
		if strings.Contains(notes, wrong) {
			t.Errorf("a template went wrong:\n%s", notes)
		}
	}
}

// checkNames reports invalid names, duplicate objects, and objects outside of the release's
// namespace.
func checkNames(t *testing.T, all []object) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range all {
		name, in := text(o, "metadata", "name"), text(o, "metadata", "namespace")
		id := fmt.Sprintf("%s %s/%s", o["kind"], in, name)
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		switch kind := text(o, "kind"); kind {
		case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		case "Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 || in != "" {
				t.Errorf("%s: %v", id, wrong)
			}
		case "Service":
			if wrong := validation.IsDNS1035Label(name); len(wrong) > 0 {
				t.Errorf("%s: %v", id, wrong)
			}
			fallthrough
		default:
			if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
				t.Errorf("%s: %v", id, wrong)
			}
			if in != namespace {
				t.Errorf("%s is not in the release's namespace %s", id, namespace)
			}
		}
		labels, _ := at(o, "metadata", "labels").(object)
		for key, value := range labels {
			if s, ok := value.(string); !ok || len(validation.IsValidLabelValue(s)) > 0 {
				t.Errorf("%s: label %s: %v", id, key, value)
			}
		}
	}
}

// checkPod compares the parts of a pod with each other.
func checkPod(t *testing.T, all []object, w *workload) {
	t.Helper()
	spec := at(w.pod, "spec").(object)
	selector, _ := at(w.object, "spec", "selector", "matchLabels").(object)
	for key, value := range selector {
		if at(w.pod, "metadata", "labels").(object)[key] != value {
			t.Errorf("%s does not select its own pods by %s", w.name(), key)
		}
	}
	for _, other := range workloads(t, all) {
		if other.name() != w.name() && cmp.Equal(selector, at(other.object, "spec", "selector", "matchLabels")) {
			t.Errorf("%s and %s select the same pods", w.name(), other.name())
		}
	}

	volumes := map[string]object{}
	for _, v := range items(spec, "volumes") {
		volumes[text(v, "name")] = v.(object)
	}
	var mounts []string
	for _, m := range items(w.container, "volumeMounts") {
		if volumes[text(m, "name")] == nil {
			t.Errorf("%s mounts %s, which is no volume", w.name(), text(m, "name"))
		}
		mounts = append(mounts, text(m, "mountPath"))
	}
	for _, file := range filesOf(w.config) {
		if !slices.ContainsFunc(mounts, func(m string) bool { return strings.HasPrefix(file, m+"/") || file == m }) {
			t.Errorf("the configuration of %s names %s, and nothing is mounted there: %v", w.name(), file, mounts)
		}
	}

	grace := argument(t, w, "--grace=")
	seconds, err := strconv.Atoi(strings.TrimSuffix(grace, "s"))
	if until, ok := at(spec, "terminationGracePeriodSeconds").(float64); err != nil || !ok ||
		until < float64(seconds+10) {
		t.Errorf("%s has a grace of %s and is killed after %v s", w.name(), grace, until)
	}
	if got := argument(t, w, "--config="); got != "/etc/kubecdc/kubecdc.yaml" {
		t.Errorf("%s reads %s", w.name(), got)
	}
	checkMemory(t, w)
	checkProbes(t, w)
	if text(at(w.pod, "metadata", "annotations"), "checksum/config") == "" {
		t.Errorf("pods of %s do not change with the configuration", w.name())
	}
	restricted(t, w)
}

// argument returns the value of the container's argument with the prefix.
func argument(t *testing.T, w *workload, prefix string) string {
	t.Helper()
	for _, a := range items(w.container, "args") {
		if value, ok := strings.CutPrefix(a.(string), prefix); ok {
			return value
		}
	}
	t.Errorf("%s has no argument %s", w.name(), prefix)
	return ""
}

// checkMemory checks that GOMEMLIMIT is below the kernel's limit.
func checkMemory(t *testing.T, w *workload) {
	t.Helper()
	limit := text(w.container, "resources", "limits", "memory")
	// docs/guides/install.md, sizing: an agent that captures little, and the queue while the bus is
	// away.
	if q, err := resource.ParseQuantity(limit); err == nil && at(w.config, "queue", "bytes") == nil &&
		q.Value()*9/10 < (50+64)<<20 {
		t.Errorf("%s has a limit of %s: 90 %% of it are not enough for 50 MiB and a full queue of 64 MiB", w.name(),
			limit)
	}
	for _, e := range items(w.container, "env") {
		if text(e, "name") != "GOMEMLIMIT" || strings.HasSuffix(text(e, "value"), "B") {
			continue // or it is set by the user
		}
		q, err := resource.ParseQuantity(limit)
		if err != nil {
			t.Fatal(err)
		}
		got, err := strconv.ParseInt(text(e, "value"), 10, 64)
		if err != nil || got >= q.Value()*91/100 || got <= q.Value()*89/100 {
			t.Errorf("%s: GOMEMLIMIT is %s of %s", w.name(), text(e, "value"), limit)
		}
		return
	}
	if limit != "" &&
		!slices.ContainsFunc(w.env(), func(e string) bool { return strings.HasPrefix(e, "GOMEMLIMIT=") }) {
		t.Errorf("%s has a limit of %s and no GOMEMLIMIT", w.name(), limit)
	}
}

// checkProbes checks that the probes use the agent's address.
func checkProbes(t *testing.T, w *workload) {
	t.Helper()
	address := ":8080"
	if a := text(w.config, "server", "address"); a != "" {
		address = a
	}
	port := items(w.container, "ports")[0]
	if got := fmt.Sprintf(":%v", at(port, "containerPort")); got != address {
		t.Errorf("%s listens on %s and its container on %s", w.name(), address, got)
	}
	for probe, path := range map[string]string{"livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		get := at(w.container, probe, "httpGet")
		if text(get, "path") != path || text(get, "port") != text(port, "name") {
			t.Errorf("%s of %s asks %v", probe, w.name(), get)
		}
	}
}

// restricted checks for the restricted Pod Security Standard. The init container that creates the
// directory on a node is exempt.
func restricted(t *testing.T, w *workload) {
	t.Helper()
	containers := items(w.pod, "spec", "containers")
	if text(w.config, "mode") != "node" || at(w.config, "checkpoint", "file") == nil {
		containers = append(containers, items(w.pod, "spec", "initContainers")...)
	}
	if text(w.pod, "spec", "securityContext", "seccompProfile", "type") != "RuntimeDefault" ||
		at(w.pod, "spec", "securityContext", "runAsNonRoot") != true {
		t.Errorf("pods of %s: %v", w.name(), at(w.pod, "spec", "securityContext"))
	}
	for _, c := range containers {
		s := at(c, "securityContext")
		if at(s, "allowPrivilegeEscalation") != false || at(s, "readOnlyRootFilesystem") != true ||
			!cmp.Equal(at(s, "capabilities"), any(object{"drop": []any{"ALL"}})) {
			t.Errorf("container %s of %s: %v", text(c, "name"), w.name(), s)
		}
	}
}

// filesOf returns the files that a configuration names.
func filesOf(v any) []string {
	var files []string
	switch v := v.(type) {
	case object:
		for key, inner := range v {
			if s, ok := inner.(string); ok && strings.HasSuffix(key, "File") {
				files = append(files, s)
			}
			if file := at(inner, "path"); file != nil && (key == "file" || key == "directory") {
				files = append(files, file.(string))
			}
			files = append(files, filesOf(inner)...)
		}
	case []any:
		for _, inner := range v {
			files = append(files, filesOf(inner)...)
		}
	}
	return files
}

// checkRoles compares the roles of the workload's ServiceAccount, and the admission policy, with
// what `kubecdc rbac` prints for its configuration.
func checkRoles(t *testing.T, a *agent, env []string, all []object, w *workload) {
	t.Helper()
	account := text(w.pod, "spec", "serviceAccountName")
	component := text(w.pod, "metadata", "labels", "app.kubernetes.io/component")
	var got []object
	name := namespace + ":none"
	for _, kind := range []string{
		"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding",
	} {
		for _, o := range ofKind(all, kind) {
			if text(o, "metadata", "labels", "app.kubernetes.io/component") == component {
				if kind == "ClusterRole" {
					name = text(o, "metadata", "name")
				}
				delete(at(o, "metadata").(object), "labels")
				got = append(got, o)
			}
		}
	}
	printed := a.run(t, w.file, env, "rbac", "--config", "-", "--name", name, "--service-account",
		namespace+"/"+account, "-o", "json")
	var want struct{ Items []object }
	if err := json.Unmarshal([]byte(printed), &want); err != nil {
		t.Fatal(err)
	}
	// The chart creates the namespace only if the values name none: TestCheckpointNamespace.
	want.Items = slices.DeleteFunc(want.Items, func(o object) bool { return o["kind"] == "Namespace" })
	if len(got) == 0 && len(ofKind(all, "ClusterRole")) == 0 {
		return // rbac.create: false
	}
	byID := func(a, b object) int {
		id := func(o object) string { return fmt.Sprint(o["kind"], at(o, "metadata", "namespace")) }
		return strings.Compare(id(a), id(b))
	}
	slices.SortFunc(got, byID)
	slices.SortFunc(want.Items, byID)
	if diff := cmp.Diff(want.Items, got); diff != "" {
		t.Errorf("roles of %s (-kubecdc rbac +chart):\n%s", w.name(), diff)
	}
}

// helm rejects values that cannot work, with a message that names the remedy.
func TestMatrixRefused(t *testing.T) {
	h := newHelm(t)
	for _, f := range valuesFiles(t, filepath.Join("values", "wrong")) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			want := f.head["want"]
			out, err := h.template(t.Context(), release, "--values", f.path)
			if err == nil {
				t.Fatalf("rendered, want %q:\n%s", want, out)
			}
			// Helm does not break lines, but escapes quotes.
			if said := strings.ReplaceAll(err.Error(), `\"`, `"`); want == "" || !strings.Contains(said, want) {
				t.Errorf("want %q, got\n%s", want, said)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the secret is told:\n%v", err)
			}
		})
	}
}
