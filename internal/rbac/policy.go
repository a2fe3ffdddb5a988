package rbac

import (
	"fmt"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
)

const (
	admissionVersion = "admissionregistration.k8s.io/v1"
	// nodeExtra has the name of the node whose Pod a token is bound to. API servers set it from
	// Kubernetes 1.30 on (KEP-4193).
	nodeExtra = "authentication.kubernetes.io/node-name"
)

// nodeCheckpoints are the ConfigMaps with the checkpoints of agents on nodes. The agents share one
// account, and RBAC does not know nodes: a role permits the ConfigMaps of all nodes. An admission
// policy limits each agent to that of its node.
type nodeCheckpoints struct {
	namespace string
	prefix    string // of the names, before that of the node
}

// checkpointsOfNodes returns nil if the agents have another mode, or if the name of the ConfigMap
// does not end with the name of the node.
func checkpointsOfNodes(c *config.Config, o Options, kept *config.CheckpointConfigMap) *nodeCheckpoints {
	if c.Mode != config.ModeNode || o.Node == "" || kept == nil {
		return nil
	}
	prefix, found := strings.CutSuffix(kept.Name, o.Node)
	if !found {
		return nil
	}
	return &nodeCheckpoints{namespace: kept.Namespace, prefix: prefix}
}

func (n *nodeCheckpoints) rules() []Rule {
	return []Rule{{
		Notes: []string{
			"The checkpoints. RBAC does not know nodes, so this permits every ConfigMap of the namespace: " +
				"keep no others in it. The policy below lets an agent write only the checkpoint of its node. It may read those of " +
				"the others.",
		},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
		Verbs:     []string{"get", "update", "create"},
	}}
}

// policy returns the policy and its binding. The API server takes the node from the token, which is
// bound to the agent's Pod. A token of no node is refused. The policy is named for the ConfigMaps:
// if two releases would write the same ones, Helm refuses to install the second.
func (n *nodeCheckpoints) policy(o Options) []Object {
	spec := policySpec{
		FailurePolicy: "Fail",
		MatchConstraints: matchConstraints{
			NamespaceSelector: labelSelector{map[string]string{"kubernetes.io/metadata.name": n.namespace}},
			ResourceRules: []resourceRule{{
				APIGroups:   []string{""},
				APIVersions: []string{"v1"},
				Operations:  []string{"CREATE", "UPDATE", "DELETE"},
				Resources:   []string{"configmaps"},
			}},
		},
		MatchConditions: []matchCondition{{
			Name: "agent-on-a-node",
			Expression: fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", o.Namespace,
				o.ServiceAccount),
		}},
		Validations: []validation{{
			// A request for a generated name, or for a whole collection, has no name.
			Expression: fmt.Sprintf(
				"has(request.name) && has(request.userInfo.extra) && '%[1]s' in request.userInfo.extra && "+
					"request.userInfo.extra['%[1]s'].exists(node, request.name == '%[2]s' + node)", nodeExtra,
				n.prefix),
			Message: "an agent may write only the checkpoint of its own node",
			Reason:  "Forbidden",
		}},
	}
	policy := Object{
		APIVersion: admissionVersion,
		Kind:       "ValidatingAdmissionPolicy",
		Metadata:   Metadata{Name: strings.TrimRight(n.namespace+"."+n.prefix, "-.")},
		Spec:       spec,
	}
	bound := policy
	bound.Kind += "Binding"
	bound.Spec = policyBindingSpec{PolicyName: policy.Metadata.Name, ValidationActions: []string{"Deny"}}
	return []Object{policy, bound}
}

// policySpec is the spec of a ValidatingAdmissionPolicy.
type policySpec struct {
	FailurePolicy    string           `json:"failurePolicy"`
	MatchConstraints matchConstraints `json:"matchConstraints"`
	MatchConditions  []matchCondition `json:"matchConditions"`
	Validations      []validation     `json:"validations"`
}

type matchConstraints struct {
	NamespaceSelector labelSelector  `json:"namespaceSelector"`
	ResourceRules     []resourceRule `json:"resourceRules"`
}

type labelSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type resourceRule struct {
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Operations  []string `json:"operations"`
	Resources   []string `json:"resources"`
}

type matchCondition struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

type validation struct {
	Expression string `json:"expression"`
	Message    string `json:"message"`
	Reason     string `json:"reason"`
}

// policyBindingSpec is the spec of a ValidatingAdmissionPolicyBinding.
type policyBindingSpec struct {
	PolicyName        string   `json:"policyName"`
	ValidationActions []string `json:"validationActions"`
}
