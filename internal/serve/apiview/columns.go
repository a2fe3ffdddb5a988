package apiview

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The columns of the kinds below are those of kube-apiserver 1.37
// (k8s.io/kubernetes/pkg/printers/internalversion). Values are computed as there. Only the ages
// differ, which are as of the moment.

// builtinColumns returns the columns of a kind of Kubernetes, nil if kube-apiserver shows its name
// and creation only.
func builtinColumns(k *kind) *columns {
	switch k.groupVersion() + " " + k.plural {
	case "v1 pods":
		return aging("Ready Status Restarts Age +IP +Node +Nominated_Node +Readiness_Gates", podCells)
	case "v1 replicationcontrollers":
		return typed("Desired:integer Current:integer Ready:integer Age +Containers +Images +Selector",
			replicationControllerCells)
	case "v1 services":
		return typed("Type Cluster-IP External-IP Port(s) Age +Selector", serviceCells)
	case "v1 endpoints":
		return typed("Endpoints Age", endpointsCells)
	case "v1 nodes":
		return typed("Status Roles Age Version +Internal-IP +External-IP +OS-Image +Kernel-Version +Container-Runtime",
			nodeCells)
	case "v1 namespaces":
		return typed("Status Age", namespaceCells)
	case "v1 configmaps":
		return typed("Data Age", configMapCells)
	case "v1 secrets":
		return typed("Type Data Age", secretCells)
	case "v1 serviceaccounts":
		return typed("Age", noCells)
	case "v1 podtemplates":
		return typed("Containers Images Pod_Labels", podTemplateCells)
	case "v1 persistentvolumes":
		return typed(
			"Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age +VolumeMode",
			volumeCells)
	case "v1 persistentvolumeclaims":
		return typed("Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age +VolumeMode",
			claimCells)
	case "v1 resourcequotas":
		return typed("Request Limit Age", quotaCells)
	case "v1 events":
		return aging("Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +Count +Name", eventCells)
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
		return typed(
			"Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age +Containers +Images +Selector",
			daemonSetCells)
	case "apps/v1 controllerrevisions":
		return typed("Controller Revision Age", revisionCells)
	case "batch/v1 jobs":
		return aging("Status Completions Duration Age +Containers +Images +Selector", jobCells)
	case "batch/v1 cronjobs":
		return aging("Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age +Containers +Images +Selector",
			cronJobCells)
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
	case "admissionregistration.k8s.io/v1 mutatingwebhookconfigurations",
		"admissionregistration.k8s.io/v1 validatingwebhookconfigurations":
		return typed("Webhooks:integer Age", webhookCells)
	case "certificates.k8s.io/v1 certificatesigningrequests":
		return typed("Age SignerName Requestor RequestedDuration Condition", signingRequestCells)
	}
	return builtinClusterColumns(k)
}

func builtinClusterColumns(k *kind) *columns {
	switch k.groupVersion() + " " + k.plural {
	case "admissionregistration.k8s.io/v1 validatingadmissionpolicies":
		return typed("Validations:integer ParamKind Age", validatingPolicyCells)
	case "admissionregistration.k8s.io/v1 mutatingadmissionpolicies":
		return typed("Mutations:integer ParamKind Age", mutatingPolicyCells)
	case "admissionregistration.k8s.io/v1 validatingadmissionpolicybindings",
		"admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings":
		return typed("PolicyName ParamRef Age", policyBindingCells)
	case "certificates.k8s.io/v1 clustertrustbundles":
		return typed("SignerName", trustBundleCells)
	case "certificates.k8s.io/v1 podcertificaterequests":
		return typed("PodName ServiceAccountName NodeName SignerName State UnverifiedUserAnnotations",
			podCertificateCells)
	case "events.k8s.io/v1 events":
		c := aging("Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +Count +Name", eventCells)
		c.convertFrom(&otherVersion{"events.k8s.io/v1", "v1", "events", eventToCore})
		return c
	case "flowcontrol.apiserver.k8s.io/v1 flowschemas":
		return typed("PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL", flowSchemaCells)
	case "flowcontrol.apiserver.k8s.io/v1 prioritylevelconfigurations":
		return typed("Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age", priorityLevelCells)
	case "networking.k8s.io/v1 ipaddresses":
		return aging("ParentRef", addressCells)
	case "networking.k8s.io/v1 servicecidrs":
		return typed("CIDRs Age", cidrCells)
	case "node.k8s.io/v1 runtimeclasses":
		return typed("Handler Age", runtimeClassCells)
	case "resource.k8s.io/v1 deviceclasses", "resource.k8s.io/v1 resourceclaimtemplates":
		return typed("Age", noCells)
	case "resource.k8s.io/v1 devicetaintrules":
		return aging("Key Value Effect TimeAdded Age", taintRuleCells)
	case "resource.k8s.io/v1 resourceclaims":
		return typed("State Age", resourceClaimCells)
	case "resource.k8s.io/v1 resourceslices":
		return typed("Node Driver Pool Age", resourceSliceCells)
	case "storage.k8s.io/v1 csidrivers":
		return typed(
			"AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests RequiresRepublish:boolean Modes Age",
			csiDriverCells)
	case "storage.k8s.io/v1 csinodes":
		return typed("Drivers:integer Age", csiNodeCells)
	case "storage.k8s.io/v1 volumeattachments":
		c := typed("Attacher PV Node Attached:boolean Age", attachmentCells)
		c.definitions[1].Format = "name" // as kube-apiserver has it
		return c
	case "storage.k8s.io/v1 volumeattributesclasses":
		return typed("DriverName Age", attributesClassCells)
	case "storagemigration.k8s.io/v1 storageversionmigrations":
		c := typed("Resource Status", migrationCells)
		c.definitions[0].Format = "" // as kube-apiserver has it
		return c
	}
	return nil
}

// typed returns the columns of a kind that has a Go type. names lists them: _ stands for a space,
// + marks a column of -o wide, and a type other than string follows after a colon. Name comes
// first, unless it is in the list. cells returns the values of the others but Age, in their order.
func typed[T any, P typedObject[T]](names string, cells func(P) []any) *columns {
	return aging(names, func(o P, _ time.Time) []any { return cells(o) })
}

// typedObject is a pointer to the Go type of a kind.
type typedObject[T any] interface {
	*T
	metav1.Object
}

// aging is typed for a kind that shows further ages. They are as of now.
func aging[T any, P typedObject[T]](names string, cells func(o P, now time.Time) []any) *columns {
	c := &columns{}
	if !strings.Contains(names, "+Name") {
		names = "Name " + names
	}
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
		o := P(new(T))
		if err := json.Unmarshal(body, o); err != nil { // a redacted value has another type than the field
			var n named
			if json.Unmarshal(body, &n) != nil {
				return nil, nil, err
			}
			return c.newCells(n.Metadata.Name, n.Metadata.CreationTimestamp.Time, now, nil), nil, nil
		}
		others := cells(o, now)
		return c.newCells(o.GetName(), o.GetCreationTimestamp().Time, now, others), conditionsOf(o), nil
	}
	return c
}

// newCells returns the cells of an object: its name, its age and the others, which are unknown if
// there are none.
func (c *columns) newCells(name string, created, now time.Time, others []any) []any {
	isUnknown := others == nil
	var cells []any
	for i := range c.definitions {
		switch {
		case c.definitions[i].Name == "Name":
			cells = append(cells, name)
		case c.definitions[i].Name == "Age":
			cells = append(cells, ago(created, now))
		case isUnknown:
			cells = append(cells, unknown)
		default:
			cells = append(cells, others[0])
			others = others[1:]
		}
	}
	return append(cells, others...) // kube-apiserver has more cells than columns of one kind
}

// convertFrom makes the columns those of objects of another version, which are converted.
func (c *columns) convertFrom(other *otherVersion) {
	cells := c.cells
	c.cells = func(body []byte, now time.Time) ([]any, []metav1.TableRowCondition, error) {
		converted, err := other.convertJSON(body)
		if err != nil {
			return nil, nil, err
		}
		return cells(converted, now)
	}
}
