package console

import (
	"slices"
	"strings"
)

// kubernetes returns the resources that Kubernetes itself serves: group ("-": core), plural, kind, short names.
func kubernetes() []string {
	return []string{
		"- configmaps ConfigMap cm", "- endpoints Endpoints ep",
		"- events Event ev", "- limitranges LimitRange limits", "- namespaces Namespace ns", "- nodes Node no",
		"- persistentvolumeclaims PersistentVolumeClaim pvc", "- persistentvolumes PersistentVolume pv", "- pods Pod po",
		"- podtemplates PodTemplate", "- replicationcontrollers ReplicationController rc", "- resourcequotas ResourceQuota quota",
		"- secrets Secret", "- serviceaccounts ServiceAccount sa", "- services Service svc",
		"admissionregistration.k8s.io mutatingadmissionpolicies MutatingAdmissionPolicy",
		"admissionregistration.k8s.io mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding",
		"admissionregistration.k8s.io mutatingwebhookconfigurations MutatingWebhookConfiguration",
		"admissionregistration.k8s.io validatingadmissionpolicies ValidatingAdmissionPolicy",
		"admissionregistration.k8s.io validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding",
		"admissionregistration.k8s.io validatingwebhookconfigurations ValidatingWebhookConfiguration",
		"apiextensions.k8s.io customresourcedefinitions CustomResourceDefinition crd crds",
		"apiregistration.k8s.io apiservices APIService",
		"apps controllerrevisions ControllerRevision", "apps daemonsets DaemonSet ds", "apps deployments Deployment deploy",
		"apps replicasets ReplicaSet rs", "apps statefulsets StatefulSet sts",
		"autoscaling horizontalpodautoscalers HorizontalPodAutoscaler hpa",
		"batch cronjobs CronJob cj", "batch jobs Job",
		"certificates.k8s.io certificatesigningrequests CertificateSigningRequest csr",
		"coordination.k8s.io leases Lease", "discovery.k8s.io endpointslices EndpointSlice",
		"events.k8s.io events Event ev",
		"flowcontrol.apiserver.k8s.io flowschemas FlowSchema",
		"flowcontrol.apiserver.k8s.io prioritylevelconfigurations PriorityLevelConfiguration",
		"networking.k8s.io ingressclasses IngressClass", "networking.k8s.io ingresses Ingress ing",
		"networking.k8s.io ipaddresses IPAddress ip", "networking.k8s.io networkpolicies NetworkPolicy netpol",
		"networking.k8s.io servicecidrs ServiceCIDR",
		"node.k8s.io runtimeclasses RuntimeClass", "policy poddisruptionbudgets PodDisruptionBudget pdb",
		"rbac.authorization.k8s.io clusterrolebindings ClusterRoleBinding", "rbac.authorization.k8s.io clusterroles ClusterRole",
		"rbac.authorization.k8s.io rolebindings RoleBinding", "rbac.authorization.k8s.io roles Role",
		"resource.k8s.io deviceclasses DeviceClass", "resource.k8s.io resourceclaims ResourceClaim",
		"resource.k8s.io resourceclaimtemplates ResourceClaimTemplate", "resource.k8s.io resourceslices ResourceSlice",
		"scheduling.k8s.io priorityclasses PriorityClass pc",
		"storage.k8s.io csidrivers CSIDriver", "storage.k8s.io csinodes CSINode",
		"storage.k8s.io csistoragecapacities CSIStorageCapacity", "storage.k8s.io storageclasses StorageClass sc",
		"storage.k8s.io volumeattachments VolumeAttachment", "storage.k8s.io volumeattributesclasses VolumeAttributesClass vac",
	}
}

// builtin reports whether a group is Kubernetes' own, so that its resources are shown without it. events.k8s.io is not
// included: it has the core group's events.
func builtin(group string) bool {
	switch group {
	case "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io",
		"node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io":
		return true
	}
	return false
}

// expand returns the plural and the groups of a Kubernetes resource. name is its plural, singular, kind or short name, in
// lower case. plural is "" if there is none.
func expand(name string) (plural string, groups []string) {
	for _, line := range kubernetes() {
		f := strings.Fields(line)
		if f[1] != name && strings.ToLower(f[2]) != name && !slices.Contains(f[3:], name) {
			continue
		}
		plural, groups = f[1], append(groups, strings.TrimPrefix(f[0], "-"))
	}
	return plural, groups
}
