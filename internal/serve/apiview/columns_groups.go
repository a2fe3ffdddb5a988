package apiview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

func deploymentCells(o *appsv1.Deployment) []any {
	selector := "<invalid>"
	if s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err == nil {
		selector = s.String()
	}
	names, images := containerCells(o.Spec.Template.Spec.Containers)
	return []any{
		fmt.Sprintf("%d/%d", o.Status.ReadyReplicas, deref(o.Spec.Replicas, 0)), o.Status.UpdatedReplicas,
		o.Status.AvailableReplicas, names, images, selector,
	}
}

func replicaSetCells(o *appsv1.ReplicaSet) []any {
	names, images := containerCells(o.Spec.Template.Spec.Containers)
	return []any{
		deref(o.Spec.Replicas, 0), o.Status.Replicas, o.Status.ReadyReplicas, names, images,
		metav1.FormatLabelSelector(o.Spec.Selector),
	}
}

func statefulSetCells(o *appsv1.StatefulSet) []any {
	names, images := containerCells(o.Spec.Template.Spec.Containers)
	return []any{fmt.Sprintf("%d/%d", o.Status.ReadyReplicas, deref(o.Spec.Replicas, 0)), names, images}
}

func daemonSetCells(o *appsv1.DaemonSet) []any {
	names, images := containerCells(o.Spec.Template.Spec.Containers)
	return []any{
		o.Status.DesiredNumberScheduled, o.Status.CurrentNumberScheduled, o.Status.NumberReady,
		o.Status.UpdatedNumberScheduled,
		o.Status.NumberAvailable, labels.FormatLabels(o.Spec.Template.Spec.NodeSelector), names, images,
		metav1.FormatLabelSelector(o.Spec.Selector),
	}
}

func revisionCells(o *appsv1.ControllerRevision) []any {
	controller := "<none>"
	if ref := metav1.GetControllerOf(o); ref != nil {
		controller = strings.ToLower(ref.Kind)
		if group, _, ok := strings.Cut(ref.APIVersion, "/"); ok {
			controller += "." + group
		}
		controller += "/" + ref.Name
	}
	return []any{controller, o.Revision}
}

func jobCells(o *batchv1.Job, now time.Time) []any {
	completions := fmt.Sprintf("%d/1", o.Status.Succeeded)
	if o.Spec.Completions != nil {
		completions = fmt.Sprintf("%d/%d", o.Status.Succeeded, *o.Spec.Completions)
	} else if p := deref(o.Spec.Parallelism, 0); p > 1 {
		completions = fmt.Sprintf("%d/1 of %d", o.Status.Succeeded, p)
	}
	took := ""
	switch {
	case o.Status.StartTime == nil:
	case o.Status.CompletionTime == nil:
		took = ago(o.Status.StartTime.Time, now)
	default:
		took = duration.HumanDuration(o.Status.CompletionTime.Sub(o.Status.StartTime.Time))
	}
	names, images := containerCells(o.Spec.Template.Spec.Containers)
	return []any{jobStatus(o), completions, took, names, images, metav1.FormatLabelSelector(o.Spec.Selector)}
}

func jobStatus(o *batchv1.Job) string {
	has := func(kind batchv1.JobConditionType) bool {
		i := slices.IndexFunc(o.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind })
		return i >= 0 && o.Status.Conditions[i].Status == corev1.ConditionTrue
	}
	switch {
	case has(batchv1.JobComplete):
		return "Complete"
	case has(batchv1.JobFailed):
		return "Failed"
	case o.DeletionTimestamp != nil:
		return "Terminating"
	}
	for _, kind := range []batchv1.JobConditionType{
		batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		if has(kind) {
			return string(kind)
		}
	}
	return "Running"
}

func cronJobCells(o *batchv1.CronJob, now time.Time) []any {
	last := "<none>"
	if o.Status.LastScheduleTime != nil {
		last = ago(o.Status.LastScheduleTime.Time, now)
	}
	suspend := "<unset>"
	if s := o.Spec.Suspend; s != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*s]
	}
	job := &o.Spec.JobTemplate.Spec
	names, images := containerCells(job.Template.Spec.Containers)
	return []any{
		o.Spec.Schedule, deref(o.Spec.TimeZone, "<none>"), suspend, len(o.Status.Active), last,
		names, images, metav1.FormatLabelSelector(job.Selector),
	}
}

func ingressCells(o *networkingv1.Ingress) []any {
	var hosts, addresses []string
	more := false
	for _, r := range o.Spec.Rules {
		more = more || len(hosts) == 3
		if !more && r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	shown := cmp.Or(strings.Join(hosts, ","), "*")
	if more {
		shown = fmt.Sprintf("%s + %d more...", shown, len(o.Spec.Rules)-3)
	}
	for _, i := range o.Status.LoadBalancer.Ingress {
		addresses = append(addresses, cmp.Or(i.IP, i.Hostname))
	}
	ports := "80"
	if len(o.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		deref(o.Spec.IngressClassName, "<none>"), shown, strings.Join(sortedUnique(addresses), ","), ports,
	}
}

func ingressClassCells(o *networkingv1.IngressClass) []any {
	if o.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		o.Name += " (default)"
	}
	parameters := "<none>"
	if p := o.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{o.Spec.Controller, parameters}
}

func networkPolicyCells(o *networkingv1.NetworkPolicy) []any {
	return []any{metav1.FormatLabelSelector(&o.Spec.PodSelector)}
}

func endpointSliceCells(o *discoveryv1.EndpointSlice) []any {
	var ports, addresses []string
	for _, p := range o.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for i := range o.Endpoints {
		addresses = append(addresses, o.Endpoints[i].Addresses...)
	}
	return []any{
		string(o.AddressType), cmp.Or(firstOf(ports, 3), "<unset>"), cmp.Or(firstOf(addresses, 3), "<unset>"),
	}
}

func autoscalerCells(o *autoscalingv2.HorizontalPodAutoscaler) []any {
	var targets []string
	for i := range o.Spec.Metrics {
		var status autoscalingv2.MetricStatus
		if i < len(o.Status.CurrentMetrics) {
			status = o.Status.CurrentMetrics[i]
		}
		targets = append(targets, metricTarget(&o.Spec.Metrics[i], &status))
	}
	shown := "<none>"
	if n := len(targets); n > 2 {
		shown = fmt.Sprintf("%s + %d more...", strings.Join(targets[:2], ", "), n-2)
	} else if n > 0 {
		shown = strings.Join(targets, ", ")
	}
	least := "<unset>"
	if o.Spec.MinReplicas != nil {
		least = strconv.Itoa(int(*o.Spec.MinReplicas))
	}
	return []any{
		o.Spec.ScaleTargetRef.Kind + "/" + o.Spec.ScaleTargetRef.Name, shown, least, o.Spec.MaxReplicas,
		o.Status.CurrentReplicas,
	}
}

// metricTarget returns the current value of a metric and its target.
func metricTarget(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	var current autoscalingv2.MetricValueStatus
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		if status.External != nil {
			current = status.External.Current
		}
		return valueTarget(&spec.External.Target, &current, status.External != nil)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		if status.Object != nil {
			current = status.Object.Current
		}
		return valueTarget(&spec.Object.Target, &current, status.Object != nil)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		text := "<unknown>"
		if status.Pods != nil {
			text = quantity(status.Pods.Current.AverageValue)
		}
		return text + "/" + quantity(spec.Pods.Target.AverageValue)
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		if status.Resource != nil {
			current = status.Resource.Current
		}
		return string(spec.Resource.Name) + ": " +
			resourceTarget(&spec.Resource.Target, &current, status.Resource != nil)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		if status.ContainerResource != nil {
			current = status.ContainerResource.Current
		}
		return string(spec.ContainerResource.Name) + ": " +
			resourceTarget(&spec.ContainerResource.Target, &current, status.ContainerResource != nil)
	}
	return "<unknown type>"
}

func valueTarget(t *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus, known bool) string {
	text := "<unknown>"
	if t.AverageValue != nil {
		if current.AverageValue != nil {
			text = quantity(current.AverageValue)
		}
		return fmt.Sprintf("%s/%s (avg)", text, quantity(t.AverageValue))
	}
	if known {
		text = quantity(current.Value)
	}
	return text + "/" + quantity(t.Value)
}

func resourceTarget(t *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus, known bool) string {
	text := "<unknown>"
	if t.AverageValue != nil {
		if known {
			text = quantity(current.AverageValue)
		}
		return text + "/" + quantity(t.AverageValue)
	}
	if current.AverageUtilization != nil {
		text = fmt.Sprintf("%d%%", *current.AverageUtilization)
	}
	target := "<auto>"
	if t.AverageUtilization != nil {
		target = fmt.Sprintf("%d%%", *t.AverageUtilization)
	}
	return text + "/" + target
}

func quantity(q *apiresource.Quantity) string {
	if q == nil {
		return "<nil>"
	}
	return q.String()
}

func budgetCells(o *policyv1.PodDisruptionBudget) []any {
	least, most := "N/A", "N/A"
	if o.Spec.MinAvailable != nil {
		least = o.Spec.MinAvailable.String()
	}
	if o.Spec.MaxUnavailable != nil {
		most = o.Spec.MaxUnavailable.String()
	}
	return []any{least, most, o.Status.DisruptionsAllowed}
}

// roleBindingCells serves ClusterRoleBindings too: they have the same fields.
func roleBindingCells(o *rbacv1.RoleBinding) []any {
	var users, groups, accounts []string
	for _, s := range o.Subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		o.RoleRef.Kind + "/" + o.RoleRef.Name, strings.Join(users, ", "), strings.Join(groups, ", "),
		strings.Join(accounts, ", "),
	}
}

func storageClassCells(o *storagev1.StorageClass) []any {
	return []any{
		o.Provisioner, string(deref(o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
		string(deref(o.VolumeBindingMode, storagev1.VolumeBindingImmediate)), deref(o.AllowVolumeExpansion, false),
	}
}

func leaseCells(o *coordinationv1.Lease) []any {
	return []any{deref(o.Spec.HolderIdentity, "")}
}

func priorityClassCells(o *schedulingv1.PriorityClass) []any {
	return []any{o.Value, o.GlobalDefault, string(deref(o.PreemptionPolicy, ""))}
}

func webhookCells(o *struct {
	metav1.ObjectMeta `json:"metadata"`
	Webhooks          []struct{}
},
) []any {
	return []any{len(o.Webhooks)}
}

// apiService is the part of an APIService that its columns show.
type apiService struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Service *struct{ Namespace, Name string }
	}
	Status struct {
		Conditions []struct{ Type, Status, Reason string }
	}
}

func apiServiceCells(o *apiService) []any {
	service, available := "Local", "Unknown"
	if s := o.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	for _, c := range o.Status.Conditions {
		if c.Type != "Available" {
			continue
		}
		available = c.Status
		if c.Status != "True" && c.Reason != "" {
			available += " (" + c.Reason + ")"
		}
	}
	return []any{service, available}
}

func signingRequestCells(o *certificatesv1.CertificateSigningRequest) []any {
	status := "Pending"
	failed := false
	for _, c := range o.Status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateDenied:
			status = "Denied"
		case c.Type == certificatesv1.CertificateApproved && status != "Denied":
			status = "Approved"
		case c.Type == certificatesv1.CertificateFailed:
			failed = true
		}
	}
	if failed {
		status += ",Failed"
	}
	if len(o.Status.Certificate) > 0 {
		status += ",Issued"
	}
	wanted := "<none>"
	if s := o.Spec.ExpirationSeconds; s != nil {
		wanted = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{cmp.Or(o.Spec.SignerName, "<none>"), o.Spec.Username, wanted, status}
}

func definitionCells(o *struct {
	metav1.ObjectMeta `json:"metadata"`
	definition
},
) []any {
	var versions []string
	for i := range o.Spec.Versions {
		if v := &o.Spec.Versions[i]; v.Served && v.Storage {
			versions = append(versions, v.Name+"(storage)")
		} else if v.Served {
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions)
	established := false
	for _, c := range o.Status.Conditions {
		established = established || c.Type == "Established" && c.Status == "True"
	}
	n := &o.Spec.Names
	return []any{
		o.Spec.Scope, strings.Join(versions, ","), o.CreationTimestamp.UTC().Format(time.RFC3339), o.Spec.Group, n.Kind,
		strings.Join(n.ShortNames, ","), established,
	}
}
