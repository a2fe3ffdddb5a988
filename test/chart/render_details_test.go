package chart_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/test/chart"
)

const someBus = "bus.nats.url=nats://nats.messaging:4222"

// values is the path of a file of the matrix.
func values(name string) string { return filepath.Join("values", name+".yaml") }

// configOf returns the configuration of the Deployment's agents or, without a Deployment, of those
// on the nodes.
func configOf(t *testing.T, all []object) object {
	t.Helper()
	return workloads(t, all)[0].config
}

// Agents may reach exactly the ports of the configuration.
func TestNetworkPolicyPorts(t *testing.T) {
	h := newHelm(t)
	for name, want := range map[string][]int{
		"kafka":           {9093},
		"http":            {443, 8443},
		"networkpolicy":   {443, 8080, 4318},
		"relay":           {4222, 443, 9093},
		"both-everything": {4222, 8088},
		"nats-trial":      {4222},
		// The URL is in a variable, so extraEgress names the port.
		"webhook-in-secret": {443},
	} {
		t.Run(name, func(t *testing.T) {
			policy := ofKind(h.objects(t, release, "--values", values(name)), "NetworkPolicy")[0]
			egress := items(policy, "spec", "egress")
			var got []int
			for _, p := range items(egress[2], "ports") { // after DNS and the API server
				got = append(got, int(at(p, "port").(float64)))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Values of bus override config.bus, including false and 0, and null removes a key.
func TestBusIsLaidOverConfig(t *testing.T) {
	c := configOf(t, newHelm(t).objects(t, release, "--values", values("overlay")))
	want := object{"nats": object{
		"url":    "nats://nats.messaging:4222",
		"stream": object{"create": false, "maxBytes": 0.0, "name": "CHANGES"},
	}}
	if diff := cmp.Diff(any(want), c["bus"]); diff != "" {
		t.Error(diff)
	}
	if every := at(c, "snapshot", "every"); every != "0s" {
		t.Errorf("snapshot.every is %v", every)
	}
}

// Numbers stay numbers, and text that looks like one stays text: Helm has only floating point for
// both.
func TestNumbersAndText(t *testing.T) {
	h := newHelm(t)
	all := h.objects(t, release, "--values", values("extra"))
	w := workloads(t, all)[0]
	for _, want := range []string{"events: 1000000\n", "bytes: 134217728\n"} {
		if !strings.Contains(w.file, want) {
			t.Errorf("no %q in\n%s", want, w.file)
		}
	}
	if got := at(w.pod, "metadata", "annotations", "example.com/team"); got != "42" {
		t.Errorf("an annotation that is text became %v", got)
	}
	all = h.objects(t, "2nd.release", "--values", values("fullname"))
	if got := configOf(t, all)["cluster"]; got != "0042" {
		t.Errorf("cluster is %v", got)
	}
	for _, o := range all {
		if name := text(o, "metadata", "name"); !strings.HasPrefix(strings.TrimPrefix(name, namespace+":"),
			"kubecdc-123") {
			t.Errorf("%s is called %q", o["kind"], name)
		}
	}
}

// GOMEMLIMIT is 90 % of the limit, in any notation.
func TestMemoryLimit(t *testing.T) {
	h := newHelm(t)
	for limit, want := range map[string]string{
		`"1Gi"`:      "966367641",
		`"512Mi"`:    "483183820",
		`"1.5G"`:     "1350000000",
		"1000000000": "900000000",
		`"2000k"`:    "1800000",
		`"1Ti"`:      "989560464998",
	} {
		all := h.objects(t, release, "--set", someBus, "--set-json", "resources.limits.memory="+limit)
		if env := workloads(t, all)[0].env(); !slices.Contains(env, "GOMEMLIMIT="+want) {
			t.Errorf("of %s: %v, want %s", limit, env, want)
		}
	}
	// For a limit in unusual notation, the kubelet provides the value.
	all := h.objects(t, release, "--set", someBus, "--set-json", `resources.limits.memory="1e9"`)
	env := items(workloads(t, all)[0].container, "env")
	if got := text(env[len(env)-1], "valueFrom", "resourceFieldRef", "resource"); got != "limits.memory" {
		t.Errorf("of 1e9: %v", env)
	}
	all = h.objects(t, release, "--set", someBus, "--set-json", "resources.limits=null")
	for _, e := range items(workloads(t, all)[0].container, "env") {
		if text(e, "name") == "GOMEMLIMIT" {
			t.Errorf("without a limit: %v", e)
		}
	}
}

// NOTES warn of a limit that is too small for a full queue.
func TestMemoryForQueue(t *testing.T) {
	h := newHelm(t)
	for _, c := range []struct{ set, want string }{
		{"mode=both", ""},
		{"resources.limits.memory=128Mi", "Set the limit to at least 163Mi"},
		{"resources.limits.memory=164Mi", ""},
		{"resources.limits.memory=128Mi,config.queue.bytes=16MiB", ""},
		{"resources.limits.memory=128Mi,config.queue.bytes=16777216", ""},
		{"resources.limits.memory=128Mi,config.queue.inFlightBytes=1MiB", ""},
		{"config.queue.inFlightBytes=1GiB", "resources.limits.memory is 512Mi"},
		{"config.queue.bytes=1GiB", "resources.limits.memory is 512Mi"},
		{"mode=node,node.resources.limits.memory=100Mi", "node.resources.limits.memory is 100Mi"},
		{"resources.limits=null,config.queue.bytes=1GiB", ""},
	} {
		_, notes := h.install(t, release, "--set", someBus, "--set", c.set)
		if warned := strings.Contains(notes, "limits.memory"); warned != (c.want != "") ||
			!strings.Contains(notes, c.want) {
			t.Errorf("%s: want %q in\n%s", c.set, c.want, notes)
		}
	}
}

// NOTES name the destination of events without possible secrets: the path of a webhook, a query.
func TestNotesTellNoSecret(t *testing.T) {
	h := newHelm(t)
	for set, want := range map[string]string{
		"bus.http.url=https://hooks.example.com:8443/services/T000/XXSECRETXX?key=XXSECRETXX":          "sends it to https://hooks.example.com:8443.",
		"bus.http.url=https://hooks.example.com?key=XXSECRETXX":                                        "sends it to https://hooks.example.com.",
		"bus.http.url=https://[::1]/XXSECRETXX":                                                        "sends it to https://[::1].",
		"bus.http.url=https://user:XXSECRET/XX@hooks.example.com":                                      "sends it to https://user.",
		`bus.http.url=${BASE}/XXSECRETXX`:                                                              "sends it to ${BASE}.",
		`bus.nats.url=wss://nats.example.com/XXSECRETXX\,tls://nats-1.example.com:4223?key=XXSECRETXX`: "NATS JetStream at wss://nats.example.com, tls://nats-1.example.com:4223.",
		"bus.nats.stream.name=CHANGES":                                                                 "NATS JetStream at nats://127.0.0.1:4222.",
	} {
		_, notes := h.install(t, release, "--set", set)
		if !strings.Contains(notes, want) || strings.Contains(notes, "SECRET") {
			t.Errorf("%s: want %q and no secret in\n%s", set, want, notes)
		}
	}
}

// If the bus stores events, NOTES show them with kubecdc tail.
func TestNotesShowTheFirstEvent(t *testing.T) {
	h := newHelm(t)
	const tail = "exec -it deploy/" + release + " -- /kubecdc tail --config /etc/kubecdc/kubecdc.yaml --diff"
	for set, want := range map[string][]string{
		"bus.nats.url=nats://nats:4222":       {tail},
		"bus.kafka.brokers={kafka-0:9092}":    {tail},
		"bus.http.url=https://hooks.example/": {"The receiver gets each event in a POST request."},
		"bus.kafka.brokers={kafka-0:9092},bus.kafka.tls.caFile=/etc/kafka/ca.crt,bus.kafka.sasl.mechanism=SCRAM-SHA-512,bus.kafka.sasl.user=kubecdc,bus.kafka.sasl.passwordFile=/etc/kafka/password": {
			tail, "The Kafka user needs Read on the topics for the last one.",
		},
	} {
		_, notes := h.install(t, release, "--set", set)
		_, shown, _ := strings.Cut(notes, "\nNext, ")
		for _, text := range want {
			if !strings.Contains(shown, text) {
				t.Errorf("%s: want %q in\n%s", set, text, notes)
			}
		}
		if strings.Contains(shown, " tail ") != (want[0] == tail) ||
			strings.Contains(shown, "needs Read") != (len(want) > 1) {
			t.Errorf("%s: want only %q in\n%s", set, want, notes)
		}
	}
}

// The first commands that NOTES give are the next three of this installation: of its namespace, and
// of a workload that it has. In the container they run a command of the agent, with the
// configuration that the container has.
func TestNotesGiveTheNextThreeCommands(t *testing.T) {
	h, a := newHelm(t), buildAgent(t)
	for _, c := range []struct {
		name, workload, last string
		args                 []string
	}{
		{"kubecdc", "deploy/kubecdc", "tail", []string{"--set", someBus}},
		{"kubecdc", "deploy/kubecdc", "tail", []string{"--set", "nats.enabled=true"}},
		{"prod", "deploy/prod-kubecdc", "tail", []string{"--set", "bus.kafka.brokers={kafka-0:9092}"}},
		{"prod", "deploy/prod-kubecdc", "logs", []string{"--set", "bus.http.url=https://hooks.example/"}},
		{"prod", "deploy/prod-kubecdc", "logs", []string{"--set-json", `bus={"stdout":{}}`, "--set", "replicas=1"}},
		{"kubecdc", "deploy/audit", "tail", []string{"--set", someBus, "--set", "fullnameOverride=audit"}},
		{"kubecdc", "deploy/kubecdc", "tail", []string{"--set", someBus, "--set", "mode=both"}},
		{"kubecdc", "deploy/kubecdc", "tail", []string{"--set", someBus, "--set", "mode=node"}},
	} {
		t.Run(strings.Join(append([]string{c.name}, c.args...), " "), func(t *testing.T) {
			all, notes := h.install(t, c.name, c.args...)
			_, next, _ := strings.Cut(notes, "\nNext, ")
			_, next, _ = strings.Cut(next, ":\n\n")
			block, _, _ := strings.Cut(next, "\n\n")
			commands := strings.Split(block, "\n")
			if len(commands) != 3 {
				t.Fatalf("%d commands, want three:\n%s", len(commands), notes)
			}
			for i, want := range []string{
				" rollout status " + c.workload, " exec " + c.workload + " -- /kubecdc status", " " + c.last + " ",
			} {
				command := commands[i]
				if !strings.HasPrefix(command, "  kubectl -n "+namespace+" ") || !strings.Contains(command+" ", want) ||
					!strings.Contains(command+" ", c.workload+" ") {
					t.Errorf("want %q in: %s", want, command)
				}
				_, inside, ok := strings.Cut(command, " -- /kubecdc ")
				if !ok {
					continue
				}
				// Flags and arguments are right if the help of the command is printed in their
				// place.
				out, err := exec.CommandContext(t.Context(), a.path,
					append(strings.Fields(inside), "--help")...).CombinedOutput()
				if name, _, _ := strings.Cut(inside, " "); err != nil ||
					!strings.Contains(string(out), "kubecdc "+name) {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
			}
			if named(all, "Deployment", strings.TrimPrefix(c.workload, "deploy/")) == nil {
				t.Errorf("the installation has no %s", c.workload)
			}
		})
	}
}

// Commands that kubectl exec runs query the agent at its own port, and send orders to its socket in
// a writable directory.
func TestAgentIsFoundInItsPod(t *testing.T) {
	for set, want := range map[string]string{
		"mode=both":                   "KUBECDC_AGENT=127.0.0.1:8080",
		"config.server.address=:9090": "KUBECDC_AGENT=127.0.0.1:9090",
	} {
		for _, w := range workloads(t, newHelm(t).objects(t, release, "--set", someBus, "--set", set)) {
			if env := w.env(); !slices.Contains(env, want) ||
				!slices.Contains(env, "KUBECDC_SOCKET=/run/kubecdc/agent.sock") {
				t.Errorf("%s: %s has %v, want %s and KUBECDC_SOCKET", set, w.name(), env, want)
			}
		}
	}
}

// NOTES name the conditions of a rule. They also report whether the values of Secrets are sent.
func TestNotesSayWhatIsSent(t *testing.T) {
	h := newHelm(t)
	const sent, redacts = "values of captured Secrets are sent unchanged", "kubecdc redacts those"
	for _, c := range []struct{ set, want, not string }{
		{"config.log.level=debug", "captures", sent},
		{"config.redaction.secrets=true", "captures", sent},
		{"config.redaction.secrets=false", sent, redacts},
		{`config.watch[0].resources={*}`, redacts, sent},
		{`config.watch[0].resources={*},config.redaction.secrets=false`, sent, redacts},
		{
			`config.watch[0].resources={pods},config.watch[0].operations={created,deleted}`,
			"pods, only created, deleted", sent,
		},
		{`config.watch[0].resources={pods},config.watch[0].where=name != "x"`, `pods, where name != "x"`, sent},
	} {
		_, notes := h.install(t, release, "--set", someBus, "--set", c.set)
		if !strings.Contains(notes, c.want) || strings.Contains(notes, c.not) {
			t.Errorf("%s: want %q and not %q in\n%s", c.set, c.want, c.not, notes)
		}
	}
}

// The chart creates a namespace for the checkpoints of the agents on nodes, which Helm keeps. In
// the release's namespace, they may write nothing. If the values name a namespace, it must exist.
func TestCheckpointNamespace(t *testing.T) {
	h, a := newHelm(t), buildAgent(t)
	const own, points = namespace + "-" + release + "-checkpoints", "points"
	for _, c := range []struct {
		set, in string // in: the namespace of the checkpoints
		creates bool
	}{
		{"mode=both,node.checkpoint=configMap", own, true},
		{"mode=node,node.checkpoint=configMap", own, true},
		{"mode=node,node.checkpoint=configMap,rbac.create=false", own, true},
		{"mode=both,node.checkpoint=configMap,node.checkpointNamespace=points", points, false},
		{"mode=both,node.checkpointNamespace=points", "", false},
		{"node.checkpoint=configMap", "", false},
	} {
		all := h.objects(t, release, "--set", someBus, "--set", c.set)
		created := ofKind(all, "Namespace")
		if (len(created) == 1) != c.creates {
			t.Errorf("%s: creates %v", c.set, created)
		}
		for _, o := range created {
			if text(o, "metadata", "name") != c.in ||
				text(o, "metadata", "annotations", "helm.sh/resource-policy") != "keep" ||
				text(o, "metadata", "labels", "pod-security.kubernetes.io/enforce") != "restricted" {
				t.Errorf("%s: %v", c.set, o["metadata"])
			}
		}
		for _, w := range workloads(t, all) {
			if text(w.config, "mode") != "node" {
				continue
			}
			var printed struct{ Items []object }
			out := a.run(t, w.file, w.env(), "rbac", "--config", "-", "--service-account", namespace+"/any", "-o",
				"json")
			if err := json.Unmarshal([]byte(out), &printed); err != nil {
				t.Fatal(err)
			}
			got := named(printed.Items, "Namespace", c.in)
			if (got != nil) != (c.in != "") {
				t.Errorf("%s: kubecdc rbac prints namespace %v", c.set, got)
			}
			// The roles of the chart are the same: TestMatrix.
			for _, role := range append(ofKind(printed.Items, "Role"), ofKind(printed.Items, "ClusterRole")...) {
				for _, rule := range items(role, "rules") {
					verbs := items(rule, "verbs")
					reads := []any{"get", "list", "watch"}
					writes := slices.ContainsFunc(verbs, func(v any) bool { return !slices.Contains(reads, v) })
					in := text(role, "metadata", "namespace")
					if writes && in != c.in {
						t.Errorf("%s: an agent on a node may write in namespace %q: %v", c.set, in, rule)
					}
				}
			}
		}
	}
}

// Kubernetes 1.29 cannot limit an agent to the checkpoint of its node. The chart installs no policy
// there, and NOTES name the consequence.
func TestNotesWithoutAdmissionPolicy(t *testing.T) {
	h := newHelm(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(h.chart)); err != nil {
		t.Fatal(err)
	}
	notes, err := os.ReadFile(filepath.Join(dir, "templates", "NOTES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// helm template has no notes, and helm install no --kube-version.
	const file = `{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, data: {text: {{ tpl (.Files.Get "notes") . | quote }} }}`
	for name, content := range map[string]string{"templates/notes.yaml": file, "notes": string(notes)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.chart = dir
	for _, c := range []struct {
		version, set   string
		limited, warns bool
	}{
		{"1.29.14", "mode=both,node.checkpoint=configMap", false, true},
		{"1.30.0", "mode=both,node.checkpoint=configMap", true, false},
		{"v1.31.2-eks-1234", "mode=node,node.checkpoint=configMap", true, false},
		{"1.29.14", "mode=both", false, false},
		{"1.29.14", "node.checkpoint=configMap", false, false},
		{"1.37.0", "mode=both", false, false},
	} {
		all := h.objects(t, release, "--kube-version", c.version, "--set", someBus, "--set", c.set)
		policies := append(ofKind(all, "ValidatingAdmissionPolicy"), ofKind(all, "ValidatingAdmissionPolicyBinding")...)
		if (len(policies) == 2) != c.limited {
			t.Errorf("%s on %s: %d policies and bindings", c.set, c.version, len(policies))
		}
		notes := text(named(all, "ConfigMap", "notes"), "data", "text")
		warns := strings.Contains(notes, "a node can change the checkpoints of other nodes")
		if warns != c.warns || len(notes) < 1000 {
			t.Errorf("%s on %s: NOTES warn: %v\n%s", c.set, c.version, warns, notes)
		}
	}
}

// A change of a setting that the agent reads only at its start rolls its pods. Other changes do
// not.
func TestConfigurationRollsPods(t *testing.T) {
	h := newHelm(t)
	sum := func(args ...string) string {
		pod := workloads(t, h.objects(t, release, append([]string{"--set", someBus}, args...)...))[0].pod
		return text(pod, "metadata", "annotations", "checksum/config")
	}
	before := sum()
	for _, fixed := range []string{
		"config.log.format=text", "config.queue.events=5000", "bus.nats.stream.name=X", "config.snapshot.every=1h",
	} {
		if after := sum("--set", fixed); after == before {
			t.Errorf("%s changed and the pods would stay as they are", fixed)
		}
	}
	for _, live := range []string{
		"config.log.level=debug", `config.watch=[{"resources":["pods"]}]`, `config.noise=["status-only"]`,
		`config.strip=["metadata.labels"]`,
		`config.redaction={"secrets":true,"mode":"remove"}`,
	} {
		flag := "--set"
		if strings.ContainsAny(live, "[{") {
			flag = "--set-json"
		}
		if after := sum(flag, live); after != before {
			t.Errorf("%s changed, which a running agent takes, and its pods would be made anew", live)
		}
	}
	if after := sum("--set", "replicas=5", "--set", "service.port=9000"); after != before {
		t.Error("the number of replicas changed and all pods would be made anew")
	}
}

// install returns the manifests of an installation and the notes that helm prints after them.
func (h *helm) install(t *testing.T, name string, args ...string) (all []object, notes string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), h.path, append([]string{
		"install", name, h.chart, "--namespace", namespace, "--dry-run=client",
	}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.Output()
	_, printed, _ := strings.Cut(string(out), "MANIFEST:\n")
	manifests, notes, found := strings.Cut(printed, "NOTES:\n")
	if err != nil || !found {
		t.Fatalf("helm install --dry-run=client: %v\n%s", err, out)
	}
	return parse(t, manifests), notes
}

// In mode both, the agents on the nodes have the pods and Nodes of each rule, and the central agent
// has the rules as written. In mode node, the central agent has the rules' pods and Nodes, whose
// deletions it reports.
func TestRulesOfModes(t *testing.T) {
	h := newHelm(t)
	for _, c := range []struct{ mode, watch, node, central string }{
		{
			"both", `[{"resources":["*"],"except":["events"]}]`, `[{"resources":["pods","nodes"]}]`,
			`[{"resources":["*"],"except":["events"]}]`,
		},
		{
			"both", `[{"resources":["*"],"except":["nodes"]}]`, `[{"resources":["pods"]}]`,
			`[{"resources":["*"],"except":["nodes"]}]`,
		},
		{
			"both", `[{"resources":["*.v1."],"namespaces":["shop"],"labelSelector":"a=b"},{"resources":["nodes.v1."]}]`,
			`[{"resources":["pods"],"namespaces":["shop"],"labelSelector":"a=b"},{"resources":["nodes.v1."]}]`,
			`[{"resources":["*.v1."],"namespaces":["shop"],"labelSelector":"a=b"},{"resources":["nodes.v1."]}]`,
		},
		// Rules are tried in order for each object: a later one applies to the remaining objects.
		{
			"both", `[{"resources":["pods"],"labelSelector":"a=b"},{"resources":["*"]}]`,
			`[{"resources":["pods"],"labelSelector":"a=b"},{"resources":["pods","nodes"]}]`,
			`[{"resources":["pods"],"labelSelector":"a=b"},{"resources":["*"]}]`,
		},
		{
			"both", `[{"resources":["pods","nodes"]},{"resources":["*"]}]`, `[{"resources":["pods","nodes"]}]`,
			`[{"resources":["pods","nodes"]},{"resources":["*"]}]`,
		},
		{
			"both", `[{"resources":["pods"],"namespaces":["*","!x"]},{"resources":["pods"]},{"resources":["*"]}]`,
			`[{"resources":["pods"],"namespaces":["*","!x"]},{"resources":["pods"]},{"resources":["nodes"]}]`,
			`[{"resources":["pods"],"namespaces":["*","!x"]},{"resources":["pods"]},{"resources":["*"]}]`,
		},
		{
			"both", `[{"resources":["nodes","services"]}]`, `[{"resources":["nodes"]}]`,
			`[{"resources":["nodes","services"]}]`,
		},
		{"node", `[]`, `[{"resources":["pods","nodes"]}]`, `[{"resources":["pods","nodes"]}]`},
		{"node", `[{"resources":["nodes"]}]`, `[{"resources":["nodes"]}]`, ``},
		{
			"node",
			`[{"resources":["nodes.v1."],"labelSelector":"a=b","fieldSelector":"metadata.name=n1"},{"resources":["pods"],"namespaces":["x"]}]`,
			`[{"resources":["nodes.v1."],"labelSelector":"a=b","fieldSelector":"metadata.name=n1"},{"resources":["pods"],"namespaces":["x"]}]`,
			`[{"resources":["nodes.v1."],"labelSelector":"a=b","fieldSelector":"metadata.name=n1"},{"resources":["pods"],"namespaces":["x"]}]`,
		},
		{
			"node", `[{"resources":["pods","nodes"],"except":["nodes"],"operations":["deleted"]}]`,
			`[{"resources":["pods","nodes"],"except":["nodes"],"operations":["deleted"]}]`,
			`[{"resources":["pods"],"operations":["deleted"]}]`,
		},
		{
			"node", `[{"resources":["pods","rollouts.example.com"],"namespaces":["*","!x"]}]`,
			`[{"resources":["pods","rollouts.example.com"],"namespaces":["*","!x"]}]`,
			`[{"resources":["pods"],"namespaces":["*","!x"]}]`,
		},
	} {
		t.Run(c.mode+strconv.Quote(c.watch), func(t *testing.T) {
			got := map[string]any{}
			for _, w := range workloads(t,
				h.objects(t, release, "--set", someBus, "--set", "mode="+c.mode, "--set-json",
					"config.watch="+c.watch)) {
				got[text(w.config, "mode")] = w.config["watch"]
			}
			want := map[string]any{}
			for mode, watch := range map[string]string{"node": c.node, "central": c.central} {
				if watch == "" {
					continue
				}
				var rules any
				if err := yaml.Unmarshal([]byte(watch), &rules); err != nil {
					t.Fatal(err)
				}
				want[mode] = rules
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The dashboard in the release is identical to that in the chart, including its own braces.
func TestDashboardOfRelease(t *testing.T) {
	all := newHelm(t).objects(t, release, "--values", values("monitors"))
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	var want, got object
	readYAML(t, filepath.Join(dir, "monitoring", "dashboard.json"), &want)
	if err := yaml.Unmarshal([]byte(text(named(all, "ConfigMap", "kubecdc-dashboard"), "data", "kubecdc.json")),
		&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("dashboard (-chart +release):\n%s", diff)
	}
}

// All other files of the chart's directory are in its package, as the tests used them.
func TestPackage(t *testing.T) {
	h := newHelm(t)
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), h.path, "package", h.chart, "--destination", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("helm package: %v\n%s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "kubecdc-*.tgz"))
	if err != nil || len(packages) != 1 {
		t.Fatal(packages, err)
	}
	packed := &helm{path: h.path, chart: packages[0]}
	for _, name := range []string{"defaults", "monitors", "nats-trial"} {
		want, err := h.template(t.Context(), release, "--values", values(name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := packed.template(t.Context(), release, "--values", values(name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-directory +package):\n%s", name, diff)
		}
	}
	info, err := os.Stat(packages[0])
	if err != nil {
		t.Fatal(err)
	}
	// A release's Secret has at most 1 MiB, the package in it, in base64.
	if info.Size() > 300<<10 {
		t.Errorf("the package has %d bytes", info.Size())
	}
}
