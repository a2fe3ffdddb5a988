package apiview

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The columns of the kinds below are those of kube-apiserver 1.37 (k8s.io/kubernetes/pkg/printers/internalversion). Values are computed as
// there. Only the ages differ, which are as of the moment.

// builtinColumns returns the columns of a kind of Kubernetes, nil if kube-apiserver shows its name and creation only.
func builtinColumns(k *kind) *columns {
	switch k.groupVersion() + " " + k.plural {
	case "v1 pods":
		return typed("Ready Status Restarts Age +IP +Node +Nominated_Node +Readiness_Gates", podCells)
	case "v1 replicationcontrollers":
		return typed("Desired:integer Current:integer Ready:integer Age +Containers +Images +Selector", replicationControllerCells)
	case "v1 services":
		return typed("Type Cluster-IP External-IP Port(s) Age +Selector", serviceCells)
	case "v1 endpoints":
		return typed("Endpoints Age", endpointsCells)
	case "v1 nodes":
		return typed("Status Roles Age Version +Internal-IP +External-IP +OS-Image +Kernel-Version +Container-Runtime", nodeCells)
	case "v1 namespaces":
		return typed("Status Age", namespaceCells)
	case "v1 configmaps":
		return typed("Data Age", configMapCells)
	case "v1 secrets":
		return typed("Type Data Age", secretCells)
	case "v1 serviceaccounts":
		return typed("Age", serviceAccountCells)
	case "v1 persistentvolumes":
		return typed("Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age +VolumeMode", volumeCells)
	case "v1 persistentvolumeclaims":
		return typed("Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age +VolumeMode", claimCells)
	case "v1 resourcequotas":
		return typed("Request Limit Age", quotaCells)
	case "v1 events":
		c := typed("Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +Count +Name", eventCells)
		c.definitions = c.definitions[1:] // the name comes last
		return c
	}
	return builtinGroupColumns(k)
}

func builtinGroupColumns(k *kind) *columns {
	switch k.groupVersion() + " " + k.plural {
	case "apps/v1 deployments":
		return typed("Ready Up-to-date Available Age +Containers +Images +Selector", deploymentCells)
	case "apps/v1 replicasets":
		return typed("Desired:integer Current:integer Ready:integer Age +Containers +Images +Selector", replicaSetCells)
	case "apps/v1 statefulsets":
		return typed("Ready Age +Containers +Images", statefulSetCells)
	case "apps/v1 daemonsets":
		return typed("Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age +Containers +Images +Selector",
			daemonSetCells)
	case "apps/v1 controllerrevisions":
		return typed("Controller Revision:integer Age", revisionCells)
	case "batch/v1 jobs":
		return typed("Status Completions Duration Age +Containers +Images +Selector", jobCells)
	case "batch/v1 cronjobs":
		return typed("Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age +Containers +Images +Selector", cronJobCells)
	case "networking.k8s.io/v1 ingresses":
		return typed("Class Hosts Address Ports Age", ingressCells)
	case "networking.k8s.io/v1 ingressclasses":
		return typed("Controller Parameters Age", ingressClassCells)
	case "networking.k8s.io/v1 networkpolicies":
		return typed("Pod-Selector Age", networkPolicyCells)
	case "discovery.k8s.io/v1 endpointslices":
		return typed("AddressType Ports Endpoints Age", endpointSliceCells)
	case "autoscaling/v2 horizontalpodautoscalers":
		return typed("Reference Targets MinPods MaxPods Replicas Age", autoscalerCells)
	case "policy/v1 poddisruptionbudgets":
		return typed("Min_Available Max_Unavailable Allowed_Disruptions:integer Age", budgetCells)
	case "rbac.authorization.k8s.io/v1 rolebindings":
		return typed("Role Age +Users +Groups +ServiceAccounts", roleBindingCells)
	case "rbac.authorization.k8s.io/v1 clusterrolebindings":
		return typed("Role Age +Users +Groups +ServiceAccounts", roleBindingCells)
	case "storage.k8s.io/v1 storageclasses":
		return typed("Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", storageClassCells)
	case "coordination.k8s.io/v1 leases":
		return typed("Holder Age", leaseCells)
	case "scheduling.k8s.io/v1 priorityclasses":
		return typed("Value:integer Global-Default:boolean Age PreemptionPolicy", priorityClassCells)
	case "apiextensions.k8s.io/v1 customresourcedefinitions":
		return typed("Scope Versions Created_At:date +Group +Kind +ShortNames +Established:boolean", definitionCells)
	case "apiregistration.k8s.io/v1 apiservices":
		return typed("Service Available Age", apiServiceCells)
	case "admissionregistration.k8s.io/v1 mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1 validatingwebhookconfigurations":
		return typed("Webhooks:integer Age", webhookCells)
	case "certificates.k8s.io/v1 certificatesigningrequests":
		return typed("Age SignerName Requestor RequestedDuration Condition", signingRequestCells)
	}
	return nil
}

// typed returns the columns of a kind that has a Go type. The column Name comes first. names lists the others: _ stands for a space, + marks a
// column of -o wide, and a type other than string follows after a colon.
func typed[T any](names string, cells func(o *T, now time.Time) []any) *columns {
	c := &columns{definitions: []metav1.TableColumnDefinition{column("Name", "string", 0)}}
	for word := range strings.FieldsSeq(names) {
		name, wide := strings.CutPrefix(word, "+")
		name, kind, _ := strings.Cut(name, ":")
		if kind == "" {
			kind = "string"
		}
		priority := int32(0)
		if wide {
			priority = 1
		}
		c.definitions = append(c.definitions, column(strings.ReplaceAll(name, "_", " "), kind, priority))
	}
	c.cells = func(body []byte, now time.Time) ([]any, []metav1.TableRowCondition, error) {
		o := new(T)
		if err := json.Unmarshal(body, o); err != nil { // a redacted value has another type than the field
			var n named
			if json.Unmarshal(body, &n) != nil {
				return nil, nil, err
			}
			return c.nameAndAge(&n, now), nil, nil
		}
		return cells(o, now), conditionsOf(o), nil
	}
	return c
}

// nameAndAge are the cells of an object of which nothing else can be shown.
func (c *columns) nameAndAge(n *named, now time.Time) []any {
	cells := make([]any, len(c.definitions))
	for i := range cells {
		switch c.definitions[i].Name {
		case "Name":
			cells[i] = n.Metadata.Name
		case "Age":
			cells[i] = ago(n.Metadata.CreationTimestamp.Time, now)
		default:
			cells[i] = "<unknown>"
		}
	}
	return cells
}
