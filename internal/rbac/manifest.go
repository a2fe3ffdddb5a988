package rbac

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubecdc/kubecdc/internal/config"
)

const (
	apiGroup   = "rbac.authorization.k8s.io"
	apiVersion = apiGroup + "/v1"
)

// Options names the roles and the account that they are for.
type Options struct {
	Name           string // of the roles and bindings
	Namespace      string // of the ServiceAccount
	ServiceAccount string
	// Node is the name in NODE_NAME when the configuration was read: in mode node, the agent on
	// each node has its own instead. "" outside of that mode, or if none was set.
	Node string
	// Foreign reports whether a pattern can name a resource that Kubernetes itself does not serve.
	// If a rule has such a pattern, the agent watches the definitions of resources. If Foreign is
	// nil, no pattern can.
	Foreign func(config.ResourcePattern) bool
}

// NewOptions rejects values that the API server would reject. serviceAccount has the form
// NAMESPACE/NAME.
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

// Discovery lists the resources that a cluster serves and a configuration selects.
type Discovery struct {
	Resources []Resource
	Unserved  []string // patterns without a wildcard that match no served resource
	Unknown   []string // group versions whose resources the API server did not list

	// such patterns that match only resources that cannot be watched, each with the reason
	Uncapturable map[string]string
}

// Resource is a served resource, with the indexes of the rules that can take its objects, in order.
type Resource struct {
	Group      string
	Resource   string
	Namespaced bool
	Rules      []int
}

// Manifests are objects for the API server, with comments for people.
type Manifests struct {
	Header  []string // for people who find the file; New leaves it empty
	Notes   []string // that the user must read
	Objects []Object
}

// Object is a ClusterRole, a Role, an admission policy, a binding of one of these, or a Namespace,
// in the API server's format.
type Object struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   Metadata  `json:"metadata"`
	Spec       any       `json:"spec,omitempty"` // of a policy or its binding
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

// RoleRef names the role of a binding.
type RoleRef struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// Subject is the account that a binding grants the role to.
type Subject struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// New derives the manifests for a valid configuration. If d is nil, wildcards stay wildcards.
func New(c *config.Config, o Options, d *Discovery) *Manifests {
	n := &needs{config: c}
	n.ofPatterns(func(p config.ResourcePattern) bool { return d == nil || slices.Contains(d.Unserved, p.String()) })
	if d != nil {
		if len(d.Unknown) > 0 {
			n.notes = append(n.notes,
				fmt.Sprintf("The resources of %s could not be discovered: rules for it may be missing.",
					strings.Join(d.Unknown, ", ")))
		}
		for _, u := range d.Unserved {
			n.notes = append(n.notes, fmt.Sprintf("%s is not served now; it is allowed for the time when it is.", u))
		}
		for _, u := range slices.Sorted(maps.Keys(d.Uncapturable)) {
			n.notes = append(n.notes,
				fmt.Sprintf("%s cannot be captured: %s. Remove it from resources.", u, d.Uncapturable[u]))
		}
		for _, r := range d.Resources {
			n.add(r.Rules, access{group: r.Group, resource: r.Resource}, r.Namespaced)
		}
	}

	// Any pattern that takes Pods counts, even "*" in some namespaces.
	if c.Mode == config.ModeCentral &&
		slices.ContainsFunc(c.Watch, func(r config.Rule) bool { return r.Takes("", "v1", "pods") }) {
		n.access = append(n.access, &access{
			resource: "nodes", notes: []string{"Deletions of nodes, whose Pods no agent on a node observes any more."},
		})
	}

	if o.Foreign != nil &&
		slices.ContainsFunc(c.Watch, func(r config.Rule) bool { return slices.ContainsFunc(r.Resources, o.Foreign) }) {
		n.access = append(n.access,
			&access{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", notes: []string{
				"Definitions of resources, to capture custom resources from their creation to their removal.",
			}},
			&access{group: "apiregistration.k8s.io", resource: "apiservices", notes: []string{
				"And what other API servers serve.",
			}})
	}

	rules := map[string][]Rule{"": {{
		Notes:     []string{"Its uid names the cluster."},
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{
			"kube-system",
		}, Verbs: []string{"get"},
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
			Notes:     slices.Clone(a.notes),
			APIGroups: []string{a.group},
			Resources: []string{a.resource},
			Verbs:     []string{"list", "watch"},
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
	kept := checkpoint(c, o)
	ofNodes := checkpointsOfNodes(c, o, kept)
	switch {
	case ofNodes != nil:
		add(kept.Namespace, ofNodes.rules())
		n.notes = append(n.notes, "The admission policy needs Kubernetes 1.30 or later. Without it, a node can change "+
			"the checkpoints of other nodes.")
	case kept != nil:
		add(kept.Namespace, checkpointRules(c, kept))
	}
	if e := &c.LeaderElection; e.Enabled {
		add(cmp.Or(e.Namespace, o.Namespace), leaseRules(e.Lease))
	}

	m := &Manifests{Notes: n.notes}
	if ofNodes != nil && kept.Namespace != o.Namespace {
		m.Objects = append(m.Objects, Object{APIVersion: "v1", Kind: "Namespace", Metadata: Metadata{
			Name: kept.Namespace,
		}})
	}
	for _, ns := range namespaces {
		m.Objects = append(m.Objects, role(o, ns, rules[ns]), binding(o, ns))
	}
	if ofNodes != nil {
		m.Objects = append(m.Objects, ofNodes.policy(o)...)
	}
	return m
}

// checkpoint returns the ConfigMap with the checkpoint of an agent in a pod of the ServiceAccount,
// nil if the agent uses none.
func checkpoint(c *config.Config, o Options) *config.CheckpointConfigMap {
	switch {
	case c.Checkpoint.ConfigMap != nil:
		return c.Checkpoint.ConfigMap
	case c.Checkpoint.File != nil || c.Bus.Stdout():
		return nil
	}
	return &config.CheckpointConfigMap{Namespace: o.Namespace, Name: config.DefaultCheckpoint}
}

// checkpointRules returns the rules for reading and writing the ConfigMap. The permission to create
// covers every name: RBAC does not know the name of a new object when it decides.
func checkpointRules(c *config.Config, kept *config.CheckpointConfigMap) []Rule {
	notes := []string{"The checkpoint."}
	if c.Checkpoint.ConfigMap == nil {
		notes = []string{
			"The checkpoint of an agent in a pod. (The configuration names none, and outside of a pod it is a file: " +
				"then neither this rule nor the next is needed.)",
		}
	}
	configMaps := Rule{APIGroups: []string{""}, Resources: []string{"configmaps"}}
	readWrite, create := configMaps, configMaps
	readWrite.Notes = notes
	readWrite.ResourceNames = []string{kept.Name}
	readWrite.Verbs = []string{"get", "update"}
	create.Notes = []string{"RBAC cannot limit create to a name. This is for the first checkpoint."}
	create.Verbs = []string{"create"}
	return []Rule{readWrite, create}
}

// leaseRules returns the rules for a leader and its standbys. The agent never deletes a Lease.
func leaseRules(name string) []Rule {
	leases := Rule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
	renew, create := leases, leases
	renew.Notes = []string{"The Lease, whose holder writes to the bus."}
	renew.ResourceNames = []string{name}
	renew.Verbs = []string{"get", "update"}
	create.Notes = []string{
		"RBAC cannot limit create to a name. This is for the first start, and if the Lease was deleted.",
	}
	create.Verbs = []string{"create"}
	return []Rule{renew, create}
}

// role returns the Role of namespace, or the ClusterRole if namespace is empty.
func role(o Options, namespace string, rules []Rule) Object {
	kind := "ClusterRole"
	if namespace != "" {
		kind = "Role"
	}
	return Object{
		APIVersion: apiVersion,
		Kind:       kind,
		Metadata: Metadata{
			Name:      o.Name,
			Namespace: namespace,
		},
		Rules: rules,
	}
}

func binding(o Options, namespace string) Object {
	b := role(o, namespace, nil)
	b.RoleRef = &RoleRef{APIGroup: apiGroup, Kind: b.Kind, Name: o.Name}
	b.Subjects = []Subject{{Kind: "ServiceAccount", Name: o.ServiceAccount, Namespace: o.Namespace}}
	b.Kind += "Binding"
	return b
}
