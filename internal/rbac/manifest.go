package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubecdc/kubecdc/internal/config"
)

const (
	apiGroup   = "rbac.authorization.k8s.io"
	apiVersion = apiGroup + "/v1"
)

// Options say for whom.
type Options struct {
	Name           string // of the roles and bindings
	Namespace      string // of the ServiceAccount
	ServiceAccount string
	// Foreign tells if a pattern can name what Kubernetes itself does not serve. Where a rule does, the agent follows what is
	// defined. nil: none can.
	Foreign func(config.ResourcePattern) bool
}

// NewOptions checks what the API server would refuse. The ServiceAccount is written as NAMESPACE/NAME.
func NewOptions(name, serviceAccount string) (Options, error) {
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return Options{}, fmt.Errorf("--name: must be what a ClusterRole can be called, got %q", name)
	}
	namespace, account, _ := strings.Cut(serviceAccount, "/")
	if len(content.IsDNS1123Label(namespace)) > 0 || len(content.IsDNS1123Subdomain(account)) > 0 {
		return Options{}, fmt.Errorf("--service-account: must be NAMESPACE/NAME, got %q", serviceAccount)
	}
	return Options{Name: name, Namespace: namespace, ServiceAccount: account}, nil
}

// Discovery is what a cluster serves of what a configuration selects.
type Discovery struct {
	Resources []Resource
	Unserved  []string // patterns without a wildcard that match nothing which is served
	Unknown   []string // group versions of which it was not told what they serve
}

// Resource is a resource that is served and the indexes of the rules that can take objects of it, in order.
type Resource struct {
	Group      string
	Resource   string
	Namespaced bool
	Rules      []int
}

// Manifests are objects for the API server, and what to say about them.
type Manifests struct {
	Header  []string // what a person who finds the file should know; New leaves it empty
	Notes   []string // what the user has to hear of
	Objects []Object
}

// Object is a ClusterRole, a Role or a binding of one, as the API server takes it.
type Object struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   Metadata  `json:"metadata"`
	Rules      []Rule    `json:"rules,omitempty"`
	RoleRef    *RoleRef  `json:"roleRef,omitempty"`
	Subjects   []Subject `json:"subjects,omitempty"`
}

// Metadata names an object.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// Rule is a PolicyRule. Notes are for people.
type Rule struct {
	Notes         []string `json:"-"`
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

// RoleRef is the role of a binding.
type RoleRef struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// Subject is whom a binding is for.
type Subject struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// New derives the manifests for a valid configuration. Without a discovery (nil) wildcards stay wildcards.
func New(c *config.Config, o Options, d *Discovery) *Manifests {
	n := &needs{config: c}
	n.ofPatterns(func(p config.ResourcePattern) bool { return d == nil || slices.Contains(d.Unserved, p.String()) })
	if d != nil {
		if len(d.Unknown) > 0 {
			n.notes = append(n.notes, fmt.Sprintf("The API server could not tell what %s serves: rules for it may be missing.",
				strings.Join(d.Unknown, ", ")))
		}
		for _, u := range d.Unserved {
			n.notes = append(n.notes, fmt.Sprintf("%s is not served now; it is allowed for the time when it is.", u))
		}
		for _, r := range d.Resources {
			n.add(r.Rules, access{group: r.Group, resource: r.Resource}, r.Namespaced)
		}
	}

	// Whatever the pattern is that takes them: "*" in some namespaces too.
	if c.Mode == config.ModeCentral && slices.ContainsFunc(c.Watch, func(r config.Rule) bool { return r.Takes("", "v1", "pods") }) {
		n.access = append(n.access, &access{
			resource: "nodes", notes: []string{"Which nodes go, and leave Pods behind that no agent observes any more."},
		})
	}

	if o.Foreign != nil && slices.ContainsFunc(c.Watch, func(r config.Rule) bool { return slices.ContainsFunc(r.Resources, o.Foreign) }) {
		n.access = append(n.access,
			&access{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", notes: []string{
				"What is defined: custom resources are told of from their birth to their end.",
			}},
			&access{group: "apiregistration.k8s.io", resource: "apiservices", notes: []string{"And what other API servers serve."}})
	}

	rules := map[string][]Rule{"": {{
		Notes:     []string{"Its uid names the cluster."},
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"},
	}}}
	namespaces := []string{""}
	var last *access
	for _, a := range n.reduced() {
		if last != nil && last.namespace == a.namespace && last.group == a.group && last.name == a.name {
			r := &rules[a.namespace][len(rules[a.namespace])-1]
			r.Resources, r.Notes = append(r.Resources, a.resource), union(r.Notes, a.notes)
			continue
		}
		last = a
		r := Rule{
			Notes: slices.Clone(a.notes), APIGroups: []string{a.group}, Resources: []string{a.resource}, Verbs: []string{"list", "watch"},
		}
		if a.name != "" {
			r.ResourceNames = []string{a.name}
		}
		if !slices.Contains(namespaces, a.namespace) {
			namespaces = append(namespaces, a.namespace)
		}
		rules[a.namespace] = append(rules[a.namespace], r)
	}

	add := func(namespace string, more []Rule) {
		if !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
			slices.Sort(namespaces)
		}
		rules[namespace] = append(rules[namespace], more...)
	}
	if kept := checkpoint(c, o); kept != nil {
		add(kept.Namespace, checkpointRules(c, kept))
	}
	if e := &c.LeaderElection; e.Enabled {
		add(cmp.Or(e.Namespace, o.Namespace), leaseRules(e.Lease))
	}

	m := &Manifests{Notes: n.notes}
	for _, ns := range namespaces {
		m.Objects = append(m.Objects, role(o, ns, rules[ns]), binding(o, ns))
	}
	return m
}

// checkpoint is the ConfigMap that an agent in a pod of the ServiceAccount keeps its checkpoint in, nil: in none.
func checkpoint(c *config.Config, o Options) *config.CheckpointConfigMap {
	switch {
	case c.Checkpoint.ConfigMap != nil:
		return c.Checkpoint.ConfigMap
	case c.Checkpoint.File != nil || c.Bus.Stdout():
		return nil
	}
	return &config.CheckpointConfigMap{Namespace: o.Namespace, Name: config.DefaultCheckpoint}
}

// checkpointRules are what reading and writing the ConfigMap takes. Who may create objects of a kind may do so under any
// name: RBAC does not know it yet when it decides.
func checkpointRules(c *config.Config, kept *config.CheckpointConfigMap) []Rule {
	notes := []string{"The checkpoint."}
	if c.Checkpoint.ConfigMap == nil {
		notes = []string{"The checkpoint of an agent in a pod. (The configuration names none, and outside of a pod it is a file: " +
			"then neither this rule nor the next is needed.)"}
	}
	configMaps := Rule{APIGroups: []string{""}, Resources: []string{"configmaps"}}
	readWrite, create := configMaps, configMaps
	readWrite.Notes, readWrite.ResourceNames, readWrite.Verbs = notes, []string{kept.Name}, []string{"get", "update"}
	create.Notes, create.Verbs = []string{"RBAC knows no name of what is created: this is for the first checkpoint."}, []string{"create"}
	return []Rule{readWrite, create}
}

// leaseRules are what leading, and standing by, takes. A Lease is never deleted.
func leaseRules(name string) []Rule {
	leases := Rule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
	renew, create := leases, leases
	renew.Notes, renew.ResourceNames, renew.Verbs = []string{"The Lease, whose holder writes to the bus."}, []string{name}, []string{"get", "update"}
	create.Notes, create.Verbs = []string{"RBAC knows no name of what is created: this is for the first start, and for when somebody has deleted the Lease."}, []string{"create"}
	return []Rule{renew, create}
}

// role is the ClusterRole, or the Role of a namespace.
func role(o Options, namespace string, rules []Rule) Object {
	kind := "ClusterRole"
	if namespace != "" {
		kind = "Role"
	}
	return Object{APIVersion: apiVersion, Kind: kind, Metadata: Metadata{Name: o.Name, Namespace: namespace}, Rules: rules}
}

func binding(o Options, namespace string) Object {
	b := role(o, namespace, nil)
	b.RoleRef = &RoleRef{APIGroup: apiGroup, Kind: b.Kind, Name: o.Name}
	b.Subjects = []Subject{{Kind: "ServiceAccount", Name: o.ServiceAccount, Namespace: o.Namespace}}
	b.Kind += "Binding"
	return b
}
