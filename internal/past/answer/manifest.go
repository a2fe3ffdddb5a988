package answer

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

const (
	definitions = "customresourcedefinitions.apiextensions.k8s.io"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// applyOrder returns the place of a resource among the objects to apply: what others need comes
// before them, and what may reject them after them.
func applyOrder(resource string) int {
	first := []string{
		"namespaces", definitions, "priorityclasses.scheduling.k8s.io", "storageclasses.storage.k8s.io",
		"serviceaccounts", "secrets", "configmaps",
		"persistentvolumes", "persistentvolumeclaims",
	}
	if k := slices.Index(first, resource); k >= 0 {
		return k
	}
	if strings.HasSuffix(resource, ".admissionregistration.k8s.io") ||
		resource == "apiservices.apiregistration.k8s.io" {
		return len(first) + 1
	}
	return len(first)
}

// manifest is an object that is made ready for an apply: to a cluster that has it, and to one that
// does not.
type manifest struct {
	resource string
	object   map[string]any

	notes   []note
	address string   // the cluster IP, with note withoutAddress
	volume  string   // of a PersistentVolumeClaim
	refers  []string // the paths at which it refers to the old namespace, with note refersToOld
}

// controller returns the uid of the owner that controls the object, "" if none does.
func (m *manifest) controller() string {
	owners, _ := mapIn(m.object, "metadata")["ownerReferences"].([]any)
	for _, o := range owners {
		owner, _ := o.(map[string]any)
		if uid, _ := owner["uid"].(string); owner["controller"] == true {
			return uid
		}
	}
	return ""
}

// isMadeByServer reports whether the control plane or a kubelet makes the object from others, or
// from files. It would change or delete what an apply makes.
func (m *manifest) isMadeByServer(v *timeline.Version) bool {
	metadata := mapIn(m.object, "metadata")
	labels, annotations := mapIn(metadata, "labels"), mapIn(metadata, "annotations")
	isOfServer := v.Namespace == "default" && v.Name == "kubernetes"
	switch m.resource {
	case "clustertrustbundles.certificates.k8s.io":
		signer, _ := mapIn(m.object, "spec")["signerName"].(string)
		return strings.HasPrefix(signer, "kubernetes.io/")
	case "configmaps":
		isOfSystem := v.Namespace == "kube-system" &&
			(v.Name == "extension-apiserver-authentication" ||
				v.Name == "kube-apiserver-legacy-service-account-token-tracking")
		return isOfSystem || v.Name == "kube-root-ca.crt"
	case "endpoints":
		// Older clusters do not label them. They are made again from the selector of the Service.
		return isOfServer || labels["endpoints.kubernetes.io/managed-by"] != nil ||
			annotations["endpoints.kubernetes.io/last-change-trigger-time"] != nil
	case "endpointslices.discovery.k8s.io":
		by, _ := labels["endpointslice.kubernetes.io/managed-by"].(string)
		return isOfServer || strings.HasSuffix(by, ".k8s.io")
	case "ipaddresses.networking.k8s.io":
		return labels["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io"
	case "pods":
		return annotations["kubernetes.io/config.mirror"] != nil
	}
	return false
}

// reduce removes what the server or a controller sets.
func (m *manifest) reduce() {
	spec := mapIn(m.object, "spec")
	if m.resource == "services" { // it looks at what is removed then
		m.reduceService(spec)
	}
	delete(m.object, "status")
	m.reduceMetadata()
	switch m.resource {
	case "pods":
		m.reducePod(spec)
	case "persistentvolumes":
		claimRef := mapIn(spec, "claimRef") // without these, the volume waits for the claim of that name
		delete(claimRef, "uid")
		delete(claimRef, "resourceVersion")
	case "persistentvolumeclaims":
		m.volume, _ = spec["volumeName"].(string)
	case "namespaces":
		delete(spec, "finalizers")
	case "jobs.batch":
		forgetJob(spec, mapIn(m.object, "metadata"))
	case "certificatesigningrequests.certificates.k8s.io": // the server sets who applies it
		for _, field := range []string{"username", "uid", "groups", "extra"} {
			delete(spec, field)
		}
	case "clusterroles.rbac.authorization.k8s.io":
		if m.object["aggregationRule"] != nil {
			delete(m.object, "rules")
		}
	case "secrets":
		if m.object["type"] == "kubernetes.io/service-account-token" { // a token is of the account's uid
			dropKeys(mapIn(m.object, "metadata"), "annotations", func(key string) bool {
				return key == "kubernetes.io/service-account.uid"
			})
			dropKeys(m.object, "data", func(key string) bool {
				return slices.Contains([]string{"ca.crt", "namespace", "token"}, key)
			})
		}
	}
	if spec != nil && len(spec) == 0 {
		delete(m.object, "spec")
	}
}

// reduceMetadata removes what the server and controllers note in metadata.
func (m *manifest) reduceMetadata() {
	metadata := mapIn(m.object, "metadata")
	if owners, _ := metadata["ownerReferences"].([]any); len(owners) > 0 {
		m.notes = append(m.notes, withoutOwners)
	}
	if metadata["deletionTimestamp"] != nil {
		m.notes = append(m.notes, wasDeleted)
	}
	for _, field := range []string{
		"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
		"ownerReferences",
		"resourceVersion", "selfLink", "uid",
	} {
		delete(metadata, field)
	}
	dropKeys(metadata, "annotations", m.isOfController)
	finalizers, _ := metadata["finalizers"].([]any)
	kept := slices.DeleteFunc(slices.Clone(finalizers), func(f any) bool {
		// The garbage collector adds these for a deletion, and the Job of a pod adds its own.
		return f == "foregroundDeletion" || f == "orphan" ||
			m.resource == "pods" && f == "batch.kubernetes.io/job-tracking"
	})
	switch {
	case len(kept) == len(finalizers):
	case len(kept) == 0:
		delete(metadata, "finalizers")
	default:
		metadata["finalizers"] = kept
	}
}

// isOfController reports whether a controller or kubectl sets an annotation.
func (m *manifest) isOfController(key string) bool {
	prefixes := []string{lastApplied, "deployment.kubernetes.io/", "deprecated.daemonset.template.generation"}
	switch m.resource {
	case "persistentvolumes":
		// pv.kubernetes.io/provisioned-by stays: without it, nothing deletes the disk of a volume.
		prefixes = append(prefixes, "pv.kubernetes.io/bound-by-controller", "pv.kubernetes.io/migrated-to")
	case "persistentvolumeclaims":
		prefixes = append(prefixes, "pv.kubernetes.io/", "volume.kubernetes.io/selected-node",
			"volume.kubernetes.io/storage-provisioner",
			"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-resizer")
	case "horizontalpodautoscalers.autoscaling": // autoscaling/v1 has parts of the status there
		prefixes = append(prefixes, "autoscaling.alpha.kubernetes.io/conditions",
			"autoscaling.alpha.kubernetes.io/current-metrics")
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// reducePod removes what the scheduler and admission set, and what cannot be created.
func (m *manifest) reducePod(spec map[string]any) {
	if spec["ephemeralContainers"] != nil {
		m.notes = append(m.notes, withoutEphemeral)
	}
	// The server sets the priority by the class, and rejects another one.
	for _, field := range []string{"ephemeralContainers", "nodeName", "priority", "preemptionPolicy"} {
		delete(spec, field)
	}
}

// reduceService removes the cluster IP, unless the user has set it.
func (m *manifest) reduceService(spec map[string]any) {
	address, _ := spec["clusterIP"].(string)
	if address == "" || address == "None" {
		return
	}
	byUser, isKnown := m.setsClusterIP()
	if byUser {
		return
	}
	delete(spec, "clusterIP")
	delete(spec, "clusterIPs")
	if !isKnown {
		m.notes = append(m.notes, withoutAddress)
		m.address = address
	}
}

// setsClusterIP reports whether a client has set the cluster IP of a Service. known is false if the
// record does not show that, because the agent strips what does.
func (m *manifest) setsClusterIP() (sets, known bool) {
	metadata := mapIn(m.object, "metadata")
	if text, ok := mapIn(metadata, "annotations")[lastApplied].(string); ok {
		var applied struct {
			Spec struct{ ClusterIP string }
		}
		if json.Unmarshal([]byte(text), &applied) == nil {
			known = true
			sets = applied.Spec.ClusterIP != ""
		}
	}
	managers, _ := metadata["managedFields"].([]any)
	for _, manager := range managers {
		known = true
		fields, _ := manager.(map[string]any)
		of := mapIn(mapIn(fields, "fieldsV1"), "f:spec")
		_, has := of["f:clusterIP"]
		sets = sets || has
	}
	return sets, known
}

// forgetJob removes the generated selector and labels that connect a Job with its pods, unless the
// Job has a manual selector.
func forgetJob(spec, metadata map[string]any) {
	if spec["manualSelector"] == true {
		return
	}
	delete(spec, "selector")
	generated := func(key string) bool {
		return strings.HasSuffix(key, "controller-uid") || strings.HasSuffix(key, "job-name")
	}
	dropKeys(metadata, "labels", generated)
	dropKeys(mapIn(mapIn(spec, "template"), "metadata"), "labels", generated)
}

// mapIn returns the mapping that is a member of another, nil if there is none.
func mapIn(object map[string]any, field string) map[string]any {
	m, _ := object[field].(map[string]any)
	return m
}

// dropKeys removes keys from a map in an object, and also the map if it becomes empty.
func dropKeys(object map[string]any, field string, drop func(string) bool) {
	m, ok := object[field].(map[string]any)
	if !ok {
		return
	}
	for key := range m {
		if drop(key) {
			delete(m, key)
		}
	}
	if len(m) == 0 {
		delete(object, field)
	}
}
