package rbac_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/rbac"
)

var update = flag.Bool("update", false, "write the golden files anew")

// parse parses a configuration whose checkpoint needs no access.
func parse(t rapid.TB, watch string) *config.Config {
	t.Helper()
	return parseWith(t, watch, "checkpoint: {file: {path: /checkpoint.json}}")
}

func parseWith(t rapid.TB, watch, checkpoint string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nwatch:\n"+watch+"\n"+checkpoint+"\n"), "test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func options(t rapid.TB) rbac.Options {
	t.Helper()
	o, err := rbac.NewOptions("kubecdc", "kubecdc/agent")
	if err != nil {
		t.Fatal(err)
	}
	// Package discovery decides which groups are Kubernetes' own. In these tests, the name of a
	// group is enough.
	o.Foreign = func(p config.ResourcePattern) bool {
		return p.Groups() == nil || slices.ContainsFunc(p.Groups(), func(g string) bool {
			return strings.Contains(g, ".") && !strings.HasSuffix(g, ".k8s.io")
		})
	}
	return o
}

// Each case has a golden file. Review it as a user who would apply it.
func TestManifests(t *testing.T) {
	for _, c := range []struct {
		name, watch string
		served      *rbac.Discovery
	}{
		{name: "all", watch: `- {resources: ["*"]}`},
		{name: "all-but", watch: `- {resources: ["*"], except: [events, leases.coordination.k8s.io]}`},
		{name: "few", watch: `- {resources: [secrets, deployments.v1.apps, pods, statefulsets]}
- {resources: [nodes]}`},
		// Rules may come in any order, and overlap in any way.
		{name: "merged", watch: `- {resources: [services, pods], namespaces: [b, a]}
- {resources: [deployments], namespaces: [a]}
- {resources: ["*.apps"], except: [deployments]}`},
		// One informer reads a resource for all of its rules. It reads the rules' namespaces if all
		// of them name some, else all namespaces. It asks for a name only if all rules ask for that
		// name.
		{
			name: "several-in-namespaces",
			watch: `- {resources: [configmaps, secrets], namespaces: [shop], labelSelector: a=b}
- {resources: [configmaps], namespaces: [shop, bank], fieldSelector: metadata.name=web}
- {resources: [secrets], namespaces: [bank], fieldSelector: metadata.name=web}`,
		},
		{
			name: "several-and-the-rest",
			watch: `- {resources: [configmaps, secrets], namespaces: [shop], labelSelector: a=b}
- {resources: [configmaps], fieldSelector: metadata.name=web}
- {resources: [secrets], namespaces: ["team-*"]}`,
		},
		{
			name: "several-of-one-name",
			watch: `- {resources: [configmaps, secrets, services], labelSelector: a=b, fieldSelector: metadata.name=web}
- {resources: [configmaps], labelSelector: c=d, fieldSelector: metadata.name=web}
- {resources: [secrets], labelSelector: c=d, fieldSelector: metadata.name==web}`,
		},
		{name: "several-patterns", watch: `- {resources: ["*.apps", "*.v1."], namespaces: [shop], labelSelector: a=b}
- {resources: [deployments, configmaps], labelSelector: c=d}
- {resources: ["*.example.com"], namespaces: [shop]}
- {resources: [widgets], fieldSelector: metadata.name=web}`},
		{name: "several-events", watch: `- {resources: [events.events.k8s.io], namespaces: [shop]}
- {resources: [events], namespaces: [bank]}`},
		{name: "cluster-scoped", watch: `- {resources: ["*.storage.k8s.io"], namespaces: [shop]}
- {resources: [storageclasses], fieldSelector: metadata.name=fast}`},
		{name: "group", watch: `- {resources: ["*.networking.k8s.io", "*.v1."], except: [ingresses, pods, jobs]}`},
		{name: "any-group", watch: `- {resources: [widgets], except: [widgets.example.org]}`},
		{
			name:  "namespaces-literal",
			watch: `- {resources: [secrets, deployments], namespaces: [shop, bank, "1984", "true"]}`,
		},
		{name: "namespaces-all-resources", watch: `- {resources: ["*"], namespaces: [shop]}`},
		{name: "namespaces-glob", watch: `- {resources: [pods], namespaces: ["team-*", "!team-x"]}
- {resources: [services], namespaces: ["*"]}`},
		{
			name: "selectors",
			watch: `- {resources: [pods], labelSelector: "team in (a,b)", fieldSelector: spec.nodeName=n1}
- {resources: [secrets, namespaces], fieldSelector: metadata.name=web}
- {resources: [configmaps], fieldSelector: "metadata.name=web,metadata.namespace!=kube-system"}
- {resources: [services], fieldSelector: "metadata.name!=web"}`,
		},
		// The API server does not treat a name with a slash as a name.
		{name: "selector-of-no-name", watch: `- {resources: [pods], fieldSelector: metadata.name=a/b}`},
		// Events are the same objects in two groups, and are read in one.
		{name: "events", watch: `- {resources: [events]}`},
		{name: "events-new", watch: `- {resources: [events], except: [events.v1.]}`},
		{name: "events-twice", watch: `- {resources: ["*.events.k8s.io"]}
- {resources: [events]}`},
		{name: "events-of-others", watch: `- {resources: [events.events.k8s.io, events, events.example.com]}`},
		{name: "events-not-core", watch: `- {resources: [events], except: ["*.v1.", "events."]}`},
		{
			name: "discovered",
			watch: `- {resources: [pods, widgets, gadgets.example.com, componentstatuses], namespaces: [shop]}
- {resources: ["*"], except: [pods, widgets, gadgets, events]}`,
			served: &rbac.Discovery{
				Resources: []rbac.Resource{
					{Resource: "pods", Namespaced: true, Rules: []int{0}},
					{Group: "example.com", Resource: "widgets", Namespaced: true, Rules: []int{0}},
					{Resource: "nodes", Rules: []int{1}},
					{Group: "apps", Resource: "deployments", Namespaced: true, Rules: []int{1}},
					{Resource: "secrets", Namespaced: true, Rules: []int{1}},
				},
				Unserved: []string{"gadgets.example.com"},
				Unknown:  []string{"metrics.k8s.io/v1beta1"},

				Uncapturable: map[string]string{
					"componentstatuses": "it is served without watch (its verbs: get, list)",
				},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := rbac.New(parse(t, c.watch), options(t), c.served)
			m.Header = []string{"Of " + strings.ReplaceAll(c.watch, "\n", " ")}
			golden(t, c.name, m)
		})
	}
}

func golden(t *testing.T, name string, m *rbac.Manifests) {
	t.Helper()
	var out bytes.Buffer
	if err := m.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Error(diff)
	}
	sameAsJSON(t, m)
}

// A ConfigMap with the checkpoint needs access of its own, in a Role. That Role may exist for other
// rules.
func TestCheckpoint(t *testing.T) {
	for _, c := range []struct{ name, watch, checkpoint string }{
		{"checkpoint-default", `- {resources: [pods]}`, ""},
		{
			"checkpoint-of-its-own", `- {resources: [pods], namespaces: [a, z]}`,
			"checkpoint: {configMap: {namespace: cdc, name: shop}}",
		},
		{
			"checkpoint-among-others", `- {resources: [configmaps], namespaces: [a, z]}`,
			"checkpoint: {configMap: {namespace: a}}",
		},
		{"checkpoint-of-stdout", `- {resources: [pods]}`, "bus: {stdout: {}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := rbac.New(parseWith(t, c.watch, c.checkpoint), options(t), nil)
			m.Header = []string{"Of " + c.watch + ", " + c.checkpoint}
			golden(t, c.name, m)
		})
	}
}

// Agents on nodes share one account. A policy limits each to the checkpoint with the name of its
// node. If the name of the ConfigMap has no node, the role has this name.
func TestCheckpointsOfNodes(t *testing.T) {
	for _, c := range []struct{ name, node, mode, checkpoint string }{
		{"checkpoints-of-nodes", "n1.example", "node", "{namespace: points, name: kubecdc-checkpoint-n1.example}"},
		{"checkpoints-of-nodes-among-others", "n1", "node", "{namespace: kubecdc, name: n1}"},
		{"checkpoint-of-one-node", "n1", "node", "{namespace: points, name: kubecdc-checkpoint}"},
		{"checkpoint-of-no-node", "", "node", "{namespace: points, name: kubecdc-checkpoint-n1}"},
		{"checkpoint-of-central", "n1", "central", "{namespace: points, name: kubecdc-checkpoint-n1}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t)
			o.Node = c.node
			more := fmt.Sprintf("mode: %s\ncheckpoint: {configMap: %s}", c.mode, c.checkpoint)
			m := rbac.New(parseWith(t, `- {resources: [pods]}`, more), o, nil)
			m.Header = []string{fmt.Sprintf("Of mode %s on node %q, with checkpoint %s", c.mode, c.node, c.checkpoint)}
			golden(t, c.name, m)
		})
	}
}

// A Lease needs access of its own, in its namespace.
func TestLeaderElection(t *testing.T) {
	for _, c := range []struct{ name, watch, more string }{
		{"lease", `- {resources: [pods]}`, "leaderElection: {enabled: true}"},
		{
			"lease-elsewhere", `- {resources: [leases.coordination.k8s.io], namespaces: [a]}`,
			"leaderElection: {enabled: true, namespace: a, lease: mine}\nbus: {stdout: {}}",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := rbac.New(parseWith(t, c.watch, c.more), options(t), nil)
			m.Header = []string{"Of " + c.watch + ", " + strings.ReplaceAll(c.more, "\n", ", ")}
			golden(t, c.name, m)
		})
	}
}

// Agents on nodes, and the central agent, read with field selectors, which RBAC does not support.
// The central agent reads Nodes if any pattern takes Pods, and only then.
func TestModes(t *testing.T) {
	const node, central = "mode: node\ncheckpoint: {file: {path: /c.json}}",
		"mode: central\ncheckpoint: {file: {path: /c.json}}"
	for _, c := range []struct{ name, watch, more string }{
		{"node", `- {resources: [pods, nodes]}`, node},
		{
			"node-others",
			`- {resources: [csinodes, leases.coordination.k8s.io, resourceslices.resource.k8s.io, widgets.example.com]}
- {resources: [pods], namespaces: [shop]}`, node,
		},
		{"central", `- {resources: [pods, nodes, deployments]}`, central},
		{"central-all-in-namespace", `- {resources: ["*"], namespaces: [shop]}`, central},
		{"central-all", `- {resources: ["*"]}`, central},
		{"central-no-pods", `- {resources: [deployments, nodes]}
- {resources: ["*."], except: [pods], namespaces: [shop]}`, central},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := rbac.New(parseWith(t, c.watch, c.more), options(t), nil)
			m.Header = []string{
				"Of " + strings.ReplaceAll(c.watch, "\n", " ") + ", " + strings.ReplaceAll(c.more, "\n", ", "),
			}
			golden(t, "mode-"+c.name, m)
		})
	}
	t.Run("central-discovered", func(t *testing.T) {
		served := &rbac.Discovery{Resources: []rbac.Resource{
			{Resource: "pods", Namespaced: true, Rules: []int{0}},
			{Resource: "nodes", Rules: []int{0}},
			{Group: "apps", Resource: "deployments", Namespaced: true, Rules: []int{0}},
		}}
		m := rbac.New(parseWith(t, `- {resources: ["*"]}`, central), options(t), served)
		golden(t, "mode-central-discovered", m)
	})
}

// sameAsJSON fails if the YAML and the JSON differ, read by independent parsers.
func sameAsJSON(t rapid.TB, m *rbac.Manifests) {
	t.Helper()
	var text, list bytes.Buffer
	if err := m.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteJSON(&list); err != nil {
		t.Fatal(err)
	}
	var want struct{ Items []any }
	if err := json.Unmarshal(list.Bytes(), &want); err != nil {
		t.Fatal(err)
	}
	var got []any
	documents := yaml.NewDecoder(&text)
	for {
		var v any
		if err := documents.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if diff := cmp.Diff(want.Items, got); diff != "" {
		t.Errorf("JSON and YAML differ (-json +yaml):\n%s", diff)
	}
}

// For any rules, RBAC allows everything that a rule takes, and nothing twice. The order of the
// rules' parts does not matter.
func TestNothingIsMissingNorTwice(t *testing.T) {
	patterns := []string{
		"pods", "secrets", "events", "deployments", "widgets.example.com", "widgets", "*.apps", "*.v1.", "*",
	}
	rapid.Check(t, func(t *rapid.T) {
		c := config.Default()
		c.Watch = nil
		for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 1, 6, rapid.ID).Draw(t, "patterns") {
			var p config.ResourcePattern
			if err := p.UnmarshalText([]byte(s)); err != nil {
				t.Fatal(err)
			}
			if c.Watch == nil || rapid.Bool().Draw(t, "new rule") {
				var r config.Rule
				for _, ns := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"shop", "bank", "*"}), 0, 2,
					rapid.ID).Draw(t, "namespaces") {
					r.Namespaces = append(r.Namespaces, config.NamespacePattern(ns))
				}
				r.FieldSelector = rapid.SampledFrom([]string{"", "metadata.name=web"}).Draw(t, "fieldSelector")
				c.Watch = append(c.Watch, r)
			}
			r := &c.Watch[len(c.Watch)-1]
			r.Resources = append(r.Resources, p)
		}
		// A rule that can never match is refused; the agent never runs with such a configuration.
		for c.Validate() != nil {
			c.Watch = c.Watch[:len(c.Watch)-1]
			if len(c.Watch) == 0 {
				t.Skip("no rule is valid")
			}
		}
		m := rbac.New(c, options(t), nil)

		served := []struct{ group, resource string }{
			{"", "pods"}, {"", "secrets"}, {"", "events"}, {"apps", "deployments"}, {"example.com", "widgets"}, {
				"example.org", "widgets",
			},
		}
		for _, s := range served {
			// One informer reads it for all of its rules: in their namespaces, or in all namespaces
			// if one rule names none. It asks for a name only if all rules have it.
			within := map[string][]*config.Rule{}
			for i := range c.Watch {
				if r := &c.Watch[i]; r.Takes(s.group, "v1", s.resource) {
					within[""] = append(within[""], r)
				}
			}
			if !slices.ContainsFunc(within[""],
				func(r *config.Rule) bool { _, literal := r.Namespaces.Literal(); return !literal }) {
				for _, r := range within[""] {
					for _, ns := range r.Namespaces {
						within[string(ns)] = append(within[string(ns)], r)
					}
				}
				delete(within, "")
			}
			for ns, rules := range within {
				name := "web"
				if slices.ContainsFunc(rules, func(r *config.Rule) bool { return r.FieldSelector == "" }) {
					name = ""
				}
				for _, verb := range []string{"list", "watch"} {
					if len(rules) > 0 && allowing(m, verb, ns, s.group, s.resource, name) == 0 {
						t.Fatalf("%s of %v in namespace %q (name %q) is not allowed by %+v", verb, s, ns, name,
							m.Objects)
					}
				}
			}
		}
		for _, o := range m.Objects {
			for _, r := range o.Rules {
				if !slices.Contains(r.Verbs, "list") {
					continue
				}
				for _, resource := range r.Resources {
					name := ""
					if len(r.ResourceNames) > 0 {
						name = r.ResourceNames[0]
					}
					if n := allowing(m, "list", o.Metadata.Namespace, r.APIGroups[0], resource, name); n != 1 {
						t.Fatalf("%s.%s in %q is allowed %d times in %+v", resource, r.APIGroups[0],
							o.Metadata.Namespace, n, m.Objects)
					}
				}
			}
		}

		for _, r := range c.Watch {
			slices.Reverse(r.Resources)
			slices.Reverse(r.Namespaces)
		}
		if diff := cmp.Diff(plain(m), plain(rbac.New(c, options(t), nil))); diff != "" {
			t.Fatal(diff)
		}
		sameAsJSON(t, m)
	})
}

// plain returns the manifests as the API server receives them.
func plain(m *rbac.Manifests) string {
	var b strings.Builder
	_ = m.WriteJSON(&b) // a Builder never fails
	return b.String()
}

// allowing counts the resources of rules that allow a request, according to RBAC.
func allowing(m *rbac.Manifests, verb, namespace, group, resource, name string) int {
	n := 0
	has := func(list []string, item string) bool {
		return slices.Contains(list, item) || slices.Contains(list, "*")
	}
	for _, o := range m.Objects {
		if o.Metadata.Namespace != "" && o.Metadata.Namespace != namespace {
			continue
		}
		for _, r := range o.Rules {
			if has(r.APIGroups, group) && has(r.Resources, resource) && has(r.Verbs, verb) &&
				(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name)) {
				n++
			}
		}
	}
	return n
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ name, account, err string }{
		{"kubecdc", "kubecdc/kubecdc", ""},
		{"system:kubecdc", "a/b.c", ""},
		{"", "a/b", `--name: must be what a ClusterRole can be called, got ""`},
		{"a/b", "a/b", `--name: must be what a ClusterRole can be called, got "a/b"`},
		{"kubecdc", "kubecdc", `--service-account: must be NAMESPACE/NAME, got "kubecdc"`},
		{"kubecdc", "/kubecdc", `--service-account: must be NAMESPACE/NAME, got "/kubecdc"`},
		{"kubecdc", "a/b/c", `--service-account: must be NAMESPACE/NAME, got "a/b/c"`},
		{"kubecdc", "A/b", `--service-account: must be NAMESPACE/NAME, got "A/b"`},
	} {
		_, err := rbac.NewOptions(c.name, c.account)
		if got := ""; err != nil && err.Error() != c.err || err == nil && c.err != got {
			t.Errorf("NewOptions(%q, %q): got %v, want %q", c.name, c.account, err, c.err)
		}
	}
}
