package config

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// builtin is a resource that Kubernetes itself serves and that can be watched.
type builtin struct {
	resource string
	groups   []string // that serve it; the preferred one is the first
	short    []string // kubectl's short names
	cluster  bool     // its objects have no namespace
}

// name returns the resource with its group.
func (b *builtin) name() string {
	if b.groups[0] == "" {
		return b.resource
	}
	return b.resource + "." + b.groups[0]
}

// singular returns the singular, which is the kind in lower case.
func (b *builtin) singular() string {
	switch r := b.resource; {
	case strings.HasSuffix(r, "ies"):
		return strings.TrimSuffix(r, "ies") + "y"
	case strings.HasSuffix(r, "sses"):
		return strings.TrimSuffix(r, "es")
	default:
		return strings.TrimSuffix(r, "s")
	}
}

// builtins are the resources of Kubernetes 1.36.
var builtins = []builtin{ //nolint:gochecknoglobals // a constant; Go has none of slices
	{"configmaps", []string{""}, []string{"cm"}, false},
	{"endpoints", []string{""}, []string{"ep"}, false},
	{"events", []string{"", "events.k8s.io"}, []string{"ev"}, false},
	{"limitranges", []string{""}, []string{"limits"}, false},
	{"namespaces", []string{""}, []string{"ns"}, true},
	{"nodes", []string{""}, []string{"no"}, true},
	{"persistentvolumeclaims", []string{""}, []string{"pvc"}, false},
	{"persistentvolumes", []string{""}, []string{"pv"}, true},
	{"pods", []string{""}, []string{"po"}, false},
	{"podtemplates", []string{""}, nil, false},
	{"replicationcontrollers", []string{""}, []string{"rc"}, false},
	{"resourcequotas", []string{""}, []string{"quota"}, false},
	{"secrets", []string{""}, nil, false},
	{"serviceaccounts", []string{""}, []string{"sa"}, false},
	{"services", []string{""}, []string{"svc"}, false},

	{"controllerrevisions", []string{"apps"}, nil, false},
	{"daemonsets", []string{"apps"}, []string{"ds"}, false},
	{"deployments", []string{"apps"}, []string{"deploy"}, false},
	{"replicasets", []string{"apps"}, []string{"rs"}, false},
	{"statefulsets", []string{"apps"}, []string{"sts"}, false},
	{"cronjobs", []string{"batch"}, []string{"cj"}, false},
	{"jobs", []string{"batch"}, nil, false},
	{"horizontalpodautoscalers", []string{"autoscaling"}, []string{"hpa"}, false},
	{"poddisruptionbudgets", []string{"policy"}, []string{"pdb"}, false},

	{"ingressclasses", []string{"networking.k8s.io"}, nil, true},
	{"ingresses", []string{"networking.k8s.io"}, []string{"ing"}, false},
	{"ipaddresses", []string{"networking.k8s.io"}, []string{"ip"}, true},
	{"networkpolicies", []string{"networking.k8s.io"}, []string{"netpol"}, false},
	{"servicecidrs", []string{"networking.k8s.io"}, nil, true},
	{"endpointslices", []string{"discovery.k8s.io"}, nil, false},
	{"clusterrolebindings", []string{"rbac.authorization.k8s.io"}, nil, true},
	{"clusterroles", []string{"rbac.authorization.k8s.io"}, nil, true},
	{"rolebindings", []string{"rbac.authorization.k8s.io"}, nil, false},
	{"roles", []string{"rbac.authorization.k8s.io"}, nil, false},
	{"csidrivers", []string{"storage.k8s.io"}, nil, true},
	{"csinodes", []string{"storage.k8s.io"}, nil, true},
	{"csistoragecapacities", []string{"storage.k8s.io"}, nil, false},
	{"storageclasses", []string{"storage.k8s.io"}, []string{"sc"}, true},
	{"volumeattachments", []string{"storage.k8s.io"}, nil, true},
	{"volumeattributesclasses", []string{"storage.k8s.io"}, []string{"vac"}, true},
	{"leases", []string{"coordination.k8s.io"}, nil, false},
	{"priorityclasses", []string{"scheduling.k8s.io"}, []string{"pc"}, true},
	{"runtimeclasses", []string{"node.k8s.io"}, nil, true},
	{"flowschemas", []string{"flowcontrol.apiserver.k8s.io"}, nil, true},
	{"prioritylevelconfigurations", []string{"flowcontrol.apiserver.k8s.io"}, nil, true},
	{"mutatingwebhookconfigurations", []string{"admissionregistration.k8s.io"}, nil, true},
	{"validatingadmissionpolicies", []string{"admissionregistration.k8s.io"}, nil, true},
	{"validatingadmissionpolicybindings", []string{"admissionregistration.k8s.io"}, nil, true},
	{"validatingwebhookconfigurations", []string{"admissionregistration.k8s.io"}, nil, true},
	{"certificatesigningrequests", []string{"certificates.k8s.io"}, []string{"csr"}, true},
	{"deviceclasses", []string{"resource.k8s.io"}, nil, true},
	{"resourceclaims", []string{"resource.k8s.io"}, nil, false},
	{"resourceclaimtemplates", []string{"resource.k8s.io"}, nil, false},
	{"resourceslices", []string{"resource.k8s.io"}, nil, true},
	{"customresourcedefinitions", []string{"apiextensions.k8s.io"}, []string{"crd", "crds"}, true},
	{"apiservices", []string{"apiregistration.k8s.io"}, nil, true},
}

// uncapturables are the resources that Kubernetes and metrics-server serve without one of the verbs
// list and watch.
var uncapturables = []struct{ resource, group, why string }{ //nolint:gochecknoglobals // a constant; Go has none of slices
	{"bindings", "", onlyCreated},
	{"componentstatuses", "", onlyRead},
	{"selfsubjectreviews", "authentication.k8s.io", onlyCreated},
	{"tokenreviews", "authentication.k8s.io", onlyCreated},
	{"localsubjectaccessreviews", "authorization.k8s.io", onlyCreated},
	{"selfsubjectaccessreviews", "authorization.k8s.io", onlyCreated},
	{"selfsubjectrulesreviews", "authorization.k8s.io", onlyCreated},
	{"subjectaccessreviews", "authorization.k8s.io", onlyCreated},
	{"nodes", "metrics.k8s.io", onlyRead},
	{"pods", "metrics.k8s.io", onlyRead},
}

const (
	onlyCreated = "is served without list and watch (its verbs: create), so it cannot be captured"
	onlyRead    = "is served without watch (its verbs: get, list), so it cannot be captured"
)

// uncapturable returns the group of a resource that cannot be captured, and why; "": it may be one
// that can.
func (p *ResourcePattern) uncapturable() (group, why string) {
	for _, u := range uncapturables {
		anyGroup := p.Group == "" && !p.Core && builtinOf(p.Resource) == nil
		if u.resource == p.Resource && (u.group == p.Group || anyGroup) {
			return u.group, u.why
		}
	}
	return "", ""
}

// builtinOf returns the resource with a name; nil: Kubernetes serves none.
func builtinOf(resource string) *builtin {
	i := slices.IndexFunc(builtins, func(b builtin) bool { return b.resource == resource })
	if i < 0 {
		return nil
	}
	return &builtins[i]
}

// builtinGroups returns the groups in which Kubernetes serves a resource of this name, nil if it serves none.
func builtinGroups(resource string) []string {
	if b := builtinOf(resource); b != nil {
		return b.groups
	}
	return nil
}

// builtinNamed finds a resource by any name that kubectl accepts: its name, a short name, the singular or the kind.
func builtinNamed(word string) *builtin {
	word = strings.ToLower(word)
	i := slices.IndexFunc(builtins, func(b builtin) bool {
		return word == b.resource || word == b.singular() || slices.Contains(b.short, word)
	})
	if i < 0 {
		return nil
	}
	return &builtins[i]
}

// builtinGroup reports whether Kubernetes serves the group itself.
func builtinGroup(group string) bool {
	return slices.ContainsFunc(builtins, func(b builtin) bool { return slices.Contains(b.groups, group) })
}

// wrong returns why the pattern, written as text, is not valid; "": it is.
func (p *ResourcePattern) wrong(text string) string {
	malformed := p.Resource != "*" && !resourceName.MatchString(p.Resource) ||
		p.Group != "" && !resourceGroup.MatchString(p.Group)
	switch b := builtinNamed(p.Resource); {
	case text == "":
		return "it is empty"
	case malformed:
		// "Deployment", "Deployment.apps", "apps/v1/Deployment", "deployments/scale"
		words := strings.Split(text, "/")
		for _, word := range slices.Backward(words) {
			name, _, _ := strings.Cut(word, ".")
			if b := builtinNamed(name); b != nil {
				return "did you mean " + b.name() + "?"
			}
		}
		if near := yamldoc.Nearest(p.Resource, ResourceNames()); near != "" { // "Deploymnet"
			return "did you mean " + builtinOf(near).name() + "?"
		}
		return "write pods, deployments.apps, deployments.v1.apps, *.networking.k8s.io or *, in lower case"
	case b == nil:
		return ""
	case b.resource != p.Resource && p.Group == "" && !p.Core:
		return "did you mean " + b.name() + "?" // a kind or a short name; with a group it may be a custom resource
	case b.resource == p.Resource && (p.Group != "" || p.Core) && !slices.Contains(b.groups, p.Group) &&
		(!strings.Contains(p.Group, ".") || builtinGroup(p.Group)):
		// A group without a dot belongs to Kubernetes; groups of custom resources have a dot.
		return "there are no " + b.resource + " in that group, did you mean " + b.name() + "?"
	}
	return ""
}

// doubt returns why a valid pattern is probably a mistake; "": no reason is known.
func (p *ResourcePattern) doubt() string {
	switch {
	case p.Resource == "*" && p.Group != "" && !strings.Contains(p.Group, ".") && !builtinGroup(p.Group):
		return "Kubernetes has no group " + p.Group + ", and those of custom resources have a dot in their names"
	case p.Resource == "*", p.Group != "", p.Core, builtinOf(p.Resource) != nil:
		return ""
	}
	if near := yamldoc.Nearest(p.Resource, ResourceNames()); near != "" {
		return "Kubernetes has no resource " + p.Resource + ", did you mean " + builtinOf(near).name() + "?"
	}
	return "Kubernetes has no resource " + p.Resource + ": it is captured from every group that has one; to name only one, " +
		"add its group (" + p.Resource + ".example.com)"
}

// ResourceNames returns the resources that Kubernetes itself serves and that can be watched, without their groups.
func ResourceNames() []string {
	all := make([]string, len(builtins))
	for i := range builtins {
		all[i] = builtins[i].resource
	}
	return all
}
