package apiview

import (
	"encoding/json"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// The annotations in which autoscaling/v1 has what it has no fields for.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

// autoscalerToV1 converts a HorizontalPodAutoscaler as kube-apiserver does
// (pkg/apis/autoscaling/v1). A field without a value in the record has none then.
func autoscalerToV1(m members) error {
	var in struct {
		Metadata struct{ Annotations map[string]string }
		Spec     *autoscalingv2.HorizontalPodAutoscalerSpec
		Status   *autoscalingv2.HorizontalPodAutoscalerStatus
	}
	for name, to := range map[string]any{"metadata": &in.Metadata, "spec": &in.Spec, "status": &in.Status} {
		if m[name] == nil {
			continue
		}
		if err := json.Unmarshal(m[name], to); err != nil {
			return err
		}
	}
	notes := annotations{}
	if in.Spec != nil {
		m["spec"] = encode(autoscalerSpec(in.Spec))
		notes.addSpec(in.Spec)
	}
	if in.Status != nil {
		m["status"] = encode(autoscalerStatus(in.Status))
		notes.addStatus(in.Status)
	}
	all := maps.Clone(in.Metadata.Annotations)
	for _, name := range []string{
		metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation,
		"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
	} {
		delete(all, name)
	}
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, notes)
	return m.change("metadata", func(meta members) {
		delete(meta, "annotations")
		if len(all) > 0 {
			meta["annotations"] = encode(all)
		}
	})
}

// annotations are those that the conversion adds.
type annotations map[string]string

// encode returns the JSON of a value that comes from JSON.
func encode(value any) json.RawMessage {
	raw, _ := json.Marshal(value)
	return raw
}

func (a annotations) addSpec(spec *autoscalingv2.HorizontalPodAutoscalerSpec) {
	var others []autoscalingv1.MetricSpec
	for i := range spec.Metrics {
		if utilization(&spec.Metrics[i]) == nil {
			others = append(others, metricSpec(&spec.Metrics[i]))
		}
	}
	if len(others) > 0 {
		a[metricsAnnotation] = string(encode(others))
	}
	if b := spec.Behavior; b != nil {
		a[behaviorAnnotation] = string(encode(behavior{rulesOf(b.ScaleUp), rulesOf(b.ScaleDown)}))
	}
}

func (a annotations) addStatus(status *autoscalingv2.HorizontalPodAutoscalerStatus) {
	var current []autoscalingv1.MetricStatus
	for i := range status.CurrentMetrics {
		current = append(current, metricStatus(&status.CurrentMetrics[i]))
	}
	if len(current) > 0 {
		a[currentMetricsAnnotation] = string(encode(current))
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type:               autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type),
			Status:             c.Status,
			LastTransitionTime: c.LastTransitionTime,
			Reason:             c.Reason,
			Message:            c.Message,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	if len(conditions) > 0 {
		a[conditionsAnnotation] = string(encode(conditions))
	}
}

// utilization returns the target of the metric for which autoscaling/v1 has a field, nil for
// others.
func utilization(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

func autoscalerSpec(in *autoscalingv2.HorizontalPodAutoscalerSpec) *autoscalingv1.HorizontalPodAutoscalerSpec {
	out := &autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.ScaleTargetRef),
		MinReplicas:    in.MinReplicas,
		MaxReplicas:    in.MaxReplicas,
	}
	for i := range in.Metrics {
		if target := utilization(&in.Metrics[i]); target != nil {
			out.TargetCPUUtilizationPercentage = target
			break
		}
	}
	return out
}

func autoscalerStatus(in *autoscalingv2.HorizontalPodAutoscalerStatus) *autoscalingv1.HorizontalPodAutoscalerStatus {
	out := &autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.ObservedGeneration,
		LastScaleTime:      in.LastScaleTime,
		CurrentReplicas:    in.CurrentReplicas,
		DesiredReplicas:    in.DesiredReplicas,
	}
	for i := range in.CurrentMetrics {
		m := &in.CurrentMetrics[i]
		if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil ||
			m.Resource.Name != corev1.ResourceCPU {
			continue
		}
		if m.Resource.Current.AverageUtilization != nil {
			out.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	return out
}

func metricSpec(in *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(in.Type)}
	if s := in.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target:       autoscalingv1.CrossVersionObjectReference(s.DescribedObject),
			MetricName:   s.Metric.Name,
			TargetValue:  deref(s.Target.Value, apiresource.Quantity{}),
			Selector:     s.Metric.Selector,
			AverageValue: s.Target.AverageValue,
		}
	}
	if s := in.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName:         s.Metric.Name,
			TargetAverageValue: deref(s.Target.AverageValue, apiresource.Quantity{}),
			Selector:           s.Metric.Selector,
		}
	}
	if s := in.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name:                     s.Name,
			TargetAverageUtilization: s.Target.AverageUtilization,
			TargetAverageValue:       s.Target.AverageValue,
		}
	}
	if s := in.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name:                     s.Name,
			TargetAverageUtilization: s.Target.AverageUtilization,
			TargetAverageValue:       s.Target.AverageValue,
			Container:                s.Container,
		}
	}
	if s := in.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName:         s.Metric.Name,
			MetricSelector:     s.Metric.Selector,
			TargetValue:        s.Target.Value,
			TargetAverageValue: s.Target.AverageValue,
		}
	}
	return out
}

func metricStatus(in *autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(in.Type)}
	if s := in.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target:       autoscalingv1.CrossVersionObjectReference(s.DescribedObject),
			MetricName:   s.Metric.Name,
			CurrentValue: deref(s.Current.Value, apiresource.Quantity{}),
			Selector:     s.Metric.Selector,
			AverageValue: s.Current.AverageValue,
		}
	}
	if s := in.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName:          s.Metric.Name,
			CurrentAverageValue: deref(s.Current.AverageValue, apiresource.Quantity{}),
			Selector:            s.Metric.Selector,
		}
	}
	if s := in.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name:                      s.Name,
			CurrentAverageUtilization: s.Current.AverageUtilization,
			CurrentAverageValue:       deref(s.Current.AverageValue, apiresource.Quantity{}),
		}
	}
	if s := in.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name:                      s.Name,
			CurrentAverageUtilization: s.Current.AverageUtilization,
			CurrentAverageValue:       deref(s.Current.AverageValue, apiresource.Quantity{}),
			Container:                 s.Container,
		}
	}
	if s := in.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName:          s.Metric.Name,
			MetricSelector:      s.Metric.Selector,
			CurrentValue:        deref(s.Current.Value, apiresource.Quantity{}),
			CurrentAverageValue: s.Current.AverageValue,
		}
	}
	return out
}

// behavior is how kube-apiserver writes the behavior of an autoscaler into the annotation: with
// the names that its own types have.
type behavior struct{ ScaleUp, ScaleDown *scalingRules }

type scalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []scalingPolicy
	Tolerance                  *apiresource.Quantity
}

type scalingPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func rulesOf(in *autoscalingv2.HPAScalingRules) *scalingRules {
	if in == nil {
		return nil
	}
	out := &scalingRules{
		StabilizationWindowSeconds: in.StabilizationWindowSeconds,
		SelectPolicy:               in.SelectPolicy,
		Tolerance:                  in.Tolerance,
	}
	for _, p := range in.Policies {
		out.Policies = append(out.Policies, scalingPolicy(p))
	}
	return out
}
