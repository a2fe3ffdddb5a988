package apiview

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// conditionsOf returns the conditions of a row, by which clients grey out pods that have ended.
func conditionsOf(o any) []metav1.TableRowCondition {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	c := metav1.TableRowCondition{
		Type:   metav1.RowCompleted,
		Status: metav1.ConditionTrue,
		Reason: string(pod.Status.Phase),
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		c.Message = "The pod has completed successfully."
	case corev1.PodFailed:
		c.Message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{c}
}

func podCells(pod *corev1.Pod, now time.Time) []any {
	s := podSummary{reason: string(pod.Status.Phase), total: len(pod.Spec.Containers)}
	s.reason = cmp.Or(pod.Status.Reason, s.reason)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	if initializing := s.addInitContainers(pod); !initializing || hasCondition(pod, corev1.PodInitialized) {
		s.addContainers(pod)
	}
	if pod.DeletionTimestamp != nil {
		if pod.Status.Reason == "NodeLost" {
			s.reason = "Unknown"
		} else if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			s.reason = "Terminating"
		}
	}
	restarts := strconv.Itoa(s.restarts.n)
	if s.restarts.n != 0 && !s.restarts.last.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts.n, ago(s.restarts.last, now))
	}
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	gates := "<none>"
	if n := len(pod.Spec.ReadinessGates); n > 0 {
		met := 0
		for _, g := range pod.Spec.ReadinessGates {
			if hasCondition(pod, g.ConditionType) {
				met++
			}
		}
		gates = fmt.Sprintf("%d/%d", met, n)
	}
	return []any{
		fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, restarts, cmp.Or(ip, "<none>"),
		cmp.Or(pod.Spec.NodeName, "<none>"), cmp.Or(pod.Status.NominatedNodeName, "<none>"), gates,
	}
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	return i >= 0 && pod.Status.Conditions[i].Status == corev1.ConditionTrue
}

// podSummary is what the line of a pod says of its containers.
type podSummary struct {
	reason           string
	ready, total     int
	restarts         restarts
	sidecars         restarts // of the restartable init containers alone
	running          bool
	failedWithReason string
}

type restarts struct {
	n    int
	last time.Time
}

func (r *restarts) add(c *corev1.ContainerStatus) {
	r.n += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && r.last.Before(t.FinishedAt.Time) {
		r.last = t.FinishedAt.Time
	}
}

// addInitContainers adds the init containers to the summary. It reports whether one of them has not
// ended.
func (s *podSummary) addInitContainers(pod *corev1.Pod) bool {
	sidecar := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecar[c.Name] = true
			s.total++
		} else {
			delete(sidecar, c.Name) // the last one of a name counts
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.restarts.add(c)
		if sidecar[c.Name] {
			s.sidecars.add(c)
		}
		switch t := c.State.Terminated; {
		case t != nil && t.ExitCode == 0:
			continue
		case sidecar[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case t != nil:
			s.reason = "Init:" + terminated(t)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.reason = "Init:" + c.State.Waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

func terminated(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func (s *podSummary) addContainers(pod *corev1.Pod) {
	s.restarts = s.sidecars
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = terminated(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				s.failedWithReason = s.reason
			}
		case c.Ready && c.State.Running != nil:
			s.running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case s.running && hasCondition(pod, corev1.PodReady):
		s.reason = "Running"
	case s.failedWithReason != "":
		s.reason = s.failedWithReason
	case s.running:
		s.reason = "NotReady"
	}
}

func replicationControllerCells(o *corev1.ReplicationController) []any {
	var containers []corev1.Container
	if o.Spec.Template != nil {
		containers = o.Spec.Template.Spec.Containers
	}
	names, images := containerCells(containers)
	return []any{
		deref(o.Spec.Replicas, 0), o.Status.Replicas, o.Status.ReadyReplicas, names, images,
		labels.FormatLabels(o.Spec.Selector),
	}
}

// containerCells returns the names and the images of containers.
func containerCells(containers []corev1.Container) (names, images string) {
	var n, i []string
	for k := range containers {
		n, i = append(n, containers[k].Name), append(i, containers[k].Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func serviceCells(o *corev1.Service) []any {
	internal := "<none>"
	if len(o.Spec.ClusterIPs) > 0 {
		internal = o.Spec.ClusterIPs[0]
	}
	var ports []string
	for _, p := range o.Spec.Ports {
		if p.NodePort > 0 {
			ports = append(ports, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return []any{
		string(o.Spec.Type), internal, externalIP(o), cmp.Or(strings.Join(ports, ","), "<none>"),
		labels.FormatLabels(o.Spec.Selector),
	}
}

func externalIP(o *corev1.Service) string {
	switch o.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		if len(o.Spec.ExternalIPs) == 0 {
			return "<none>"
		}
		return strings.Join(o.Spec.ExternalIPs, ",")
	case corev1.ServiceTypeLoadBalancer:
		var ips []string
		for _, i := range o.Status.LoadBalancer.Ingress {
			ips = append(ips, cmp.Or(i.IP, i.Hostname))
		}
		ips = append(sortedUnique(ips), o.Spec.ExternalIPs...)
		if len(ips) == 0 {
			return "<pending>"
		}
		return strings.Join(ips, ",")
	case corev1.ServiceTypeExternalName:
		return o.Spec.ExternalName
	}
	return "<unknown>"
}

func sortedUnique(words []string) []string {
	slices.Sort(words)
	words = slices.Compact(words)
	return slices.DeleteFunc(words, func(s string) bool { return s == "" })
}

func endpointsCells(o *corev1.Endpoints) []any { //nolint:staticcheck // clients still list them
	var all []string
	for i := range o.Subsets {
		s := &o.Subsets[i]
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				all = append(all, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	text := "<none>"
	if len(o.Subsets) > 0 {
		text = firstOf(all, 3)
	}
	return []any{text}
}

// firstOf returns the first n of a list, and how many more there are.
func firstOf(all []string, n int) string {
	if len(all) <= n {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(all[:n], ","), len(all)-n)
}

func nodeCells(o *corev1.Node) []any {
	status := "Unknown"
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			status = "Ready"
		} else if c.Type == corev1.NodeReady {
			status = "NotReady"
		}
	}
	if o.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	var roles []string
	for key, value := range o.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" {
			roles = append(roles, value)
		}
	}
	address := func(kind corev1.NodeAddressType) string {
		for _, a := range o.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
		return "<none>"
	}
	info := &o.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, "<unknown>")
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		status, cmp.Or(strings.Join(sortedUnique(roles), ","), "<none>"), info.KubeletVersion,
		address(corev1.NodeInternalIP), address(corev1.NodeExternalIP), cmp.Or(info.OSImage, "<unknown>"), kernel,
		cmp.Or(info.ContainerRuntimeVersion, "<unknown>"),
	}
}

func namespaceCells(o *corev1.Namespace) []any {
	return []any{string(o.Status.Phase)}
}

func configMapCells(o *corev1.ConfigMap) []any {
	if _, ok := o.Data["release"]; !ok && isReleaseName(o.Name) {
		return []any{unknown} // the agent has removed it
	}
	return []any{len(o.Data) + len(o.BinaryData)}
}

func secretCells(o *corev1.Secret) []any {
	if o.Data == nil { // the agent has removed it, or there was none: ForColumns distinguishes them
		return []any{string(o.Type), unknown}
	}
	return []any{string(o.Type), len(o.Data)}
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {
			corev1.ReadWriteOncePod, "RWOP",
		},
	} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}

func volumeCells(o *corev1.PersistentVolume) []any {
	claim := ""
	if c := o.Spec.ClaimRef; c != nil {
		claim = c.Namespace + "/" + c.Name
	}
	phase := string(o.Status.Phase)
	if o.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := o.Spec.Capacity[corev1.ResourceStorage]
	class := cmp.Or(o.Annotations[corev1.BetaStorageClassAnnotation], o.Spec.StorageClassName)
	return []any{
		size.String(), accessModes(o.Spec.AccessModes), string(o.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		class,
		deref(o.Spec.VolumeAttributesClassName, "<unset>"), o.Status.Reason,
		string(deref(o.Spec.VolumeMode, "<unset>")),
	}
}

func claimCells(o *corev1.PersistentVolumeClaim) []any {
	phase := string(o.Status.Phase)
	capacity := ""
	modes := ""
	if o.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	if o.Spec.VolumeName != "" {
		size := o.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModes(o.Status.AccessModes)
	}
	class, ok := o.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok {
		class = deref(o.Spec.StorageClassName, "")
	}
	return []any{
		phase, o.Spec.VolumeName, capacity, modes, class, deref(o.Spec.VolumeAttributesClassName, "<unset>"),
		string(deref(o.Spec.VolumeMode, "<unset>")),
	}
}

func quotaCells(o *corev1.ResourceQuota) []any {
	var names []string
	for name := range o.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := o.Status.Used[corev1.ResourceName(name)], o.Status.Hard[corev1.ResourceName(name)]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{strings.Join(requests, ", "), strings.Join(limits, ", ")}
}

func eventCells(o *corev1.Event, now time.Time) []any {
	first := ago(o.FirstTimestamp.Time, now)
	if o.FirstTimestamp.IsZero() {
		first = ago(o.EventTime.Time, now)
	}
	last := ago(o.LastTimestamp.Time, now)
	if o.LastTimestamp.IsZero() {
		last = first
	}
	count := o.Count
	if o.Series != nil {
		last, count = ago(o.Series.LastObservedTime.Time, now), o.Series.Count
	} else if count == 0 {
		count = 1
	}
	target := strings.ToLower(o.InvolvedObject.Kind)
	if o.InvolvedObject.Name != "" {
		target += "/" + o.InvolvedObject.Name
	}
	source := cmp.Or(o.Source.Component, o.ReportingController)
	if instance := cmp.Or(o.Source.Host, o.ReportingInstance); instance != "" {
		source += ", " + instance
	}
	return []any{
		last, o.Type, o.Reason, target, o.InvolvedObject.FieldPath, source, strings.TrimSpace(o.Message), first, count,
	}
}
