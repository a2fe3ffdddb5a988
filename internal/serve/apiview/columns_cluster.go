package apiview

import (
	"cmp"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// noCells are those of a kind that shows its name and its age alone.
func noCells(*metav1.PartialObjectMetadata) []any { return []any{} }

func podTemplateCells(o *corev1.PodTemplate) []any {
	names, images := containerCells(o.Template.Spec.Containers)
	return []any{names, images, labels.FormatLabels(o.Template.Labels)}
}

func validatingPolicyCells(o *admissionv1.ValidatingAdmissionPolicy) []any {
	return []any{len(o.Spec.Validations), paramKind(o.Spec.ParamKind)}
}

func mutatingPolicyCells(o *admissionv1.MutatingAdmissionPolicy) []any {
	return []any{len(o.Spec.Mutations), paramKind(o.Spec.ParamKind)}
}

func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}

// policyBindingCells serves MutatingAdmissionPolicyBindings too: they have the same fields.
func policyBindingCells(o *admissionv1.ValidatingAdmissionPolicyBinding) []any {
	parameter := "<unset>"
	switch p := o.Spec.ParamRef; {
	case p == nil:
	case p.Name != "":
		parameter = cmp.Or(p.Namespace, "*") + "/" + p.Name
	case p.Selector != nil:
		parameter = p.Selector.String()
	}
	return []any{o.Spec.PolicyName, parameter}
}

func trustBundleCells(o *certificatesv1.ClusterTrustBundle) []any {
	return []any{cmp.Or(o.Spec.SignerName, "<none>")}
}

func podCertificateCells(o *certificatesv1.PodCertificateRequest) []any {
	state := "Pending"
	for _, c := range o.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued,
			certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			state = c.Type
		}
	}
	s := &o.Spec
	return []any{
		s.PodName, s.ServiceAccountName, string(s.NodeName), s.SignerName, state,
		labels.FormatLabels(s.UnverifiedUserAnnotations),
	}
}

func flowSchemaCells(o *flowcontrolv1.FlowSchema) []any {
	method, dangling := "<none>", "?"
	if m := o.Spec.DistinguisherMethod; m != nil {
		method = string(m.Type)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
			break
		}
	}
	return []any{o.Spec.PriorityLevelConfiguration.Name, o.Spec.MatchingPrecedence, method, dangling}
}

func priorityLevelCells(o *flowcontrolv1.PriorityLevelConfiguration) []any {
	cells := []any{string(o.Spec.Type), "<none>", "<none>", "<none>", "<none>"}
	if l := o.Spec.Limited; l != nil {
		cells[1] = deref(l.NominalConcurrencyShares, 0)
		if q := l.LimitResponse.Queuing; q != nil {
			cells[2] = q.Queues
			cells[3] = q.HandSize
			cells[4] = q.QueueLengthLimit
		}
	}
	return cells
}

// addressCells adds the age, for which kube-apiserver has no column.
func addressCells(o *networkingv1.IPAddress, now time.Time) []any {
	parent := "<none>"
	if p := o.Spec.ParentRef; p != nil {
		parent = strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()) + "/"
		if p.Namespace != "" {
			parent += p.Namespace + "/"
		}
		parent += p.Name
	}
	return []any{parent, ago(o.CreationTimestamp.Time, now)}
}

func cidrCells(o *networkingv1.ServiceCIDR) []any { return []any{strings.Join(o.Spec.CIDRs, ",")} }

func runtimeClassCells(o *nodev1.RuntimeClass) []any { return []any{o.Handler} }

func taintRuleCells(o *resourcev1.DeviceTaintRule, now time.Time) []any {
	t := &o.Spec.Taint
	added := ""
	if t.TimeAdded != nil {
		added = ago(t.TimeAdded.Time, now)
	}
	return []any{t.Key, t.Value, string(t.Effect), added}
}

func resourceClaimCells(o *resourcev1.ResourceClaim) []any {
	var states []string
	if o.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case o.Status.Allocation != nil && len(o.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case o.Status.Allocation != nil:
		states = append(states, "allocated")
	case o.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return []any{strings.Join(states, ",")}
}

func resourceSliceCells(o *resourcev1.ResourceSlice) []any {
	return []any{deref(o.Spec.NodeName, ""), o.Spec.Driver, o.Spec.Pool.Name}
}

func csiDriverCells(o *storagev1.CSIDriver) []any {
	tokens := "<unset>"
	if o.Spec.TokenRequests != nil {
		var audiences []string
		for _, t := range o.Spec.TokenRequests {
			audiences = append(audiences, t.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	var modes []string
	for _, m := range o.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	return []any{
		deref(o.Spec.AttachRequired, true), deref(o.Spec.PodInfoOnMount, false), deref(o.Spec.StorageCapacity, false),
		tokens,
		deref(o.Spec.RequiresRepublish, false), cmp.Or(strings.Join(modes, ","), "<none>"),
	}
}

func csiNodeCells(o *storagev1.CSINode) []any { return []any{len(o.Spec.Drivers)} }

func attachmentCells(o *storagev1.VolumeAttachment) []any {
	return []any{o.Spec.Attacher, deref(o.Spec.Source.PersistentVolumeName, ""), o.Spec.NodeName, o.Status.Attached}
}

func attributesClassCells(o *storagev1.VolumeAttributesClass) []any { return []any{o.DriverName} }

func migrationCells(o *migrationv1.StorageVersionMigration) []any {
	status := "Unknown"
	for _, c := range o.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch c.Type {
		case string(migrationv1.MigrationRunning), string(migrationv1.MigrationFailed),
			string(migrationv1.MigrationSucceeded):
			status = c.Type
		}
	}
	return []any{o.Spec.Resource.String(), status}
}
