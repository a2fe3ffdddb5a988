package e2e_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shapes fills objects of Kubernetes with random values, of the kinds that tables and conversions
// depend on. The objects need not be valid: a test writes them into etcd, and the API server
// serves what it can read.
type shapes struct {
	*rand.Rand
	now time.Time
}

// words are the values of a text whose type says nothing about it.
func words() []string {
	return []string{
		"", "a", "b-1", "x.example.com/y", "10.0.0.1", "True", "False", "Unknown", "Ready", "Running", "Failed",
		"Succeeded", "Complete",
		"Issued", "Denied", "Dangling", "Completed", "NodeLost", "PodInitializing", "CrashLoopBackOff",
		"SchedulingGated", "User", "Group",
		"ServiceAccount", "cpu", "memory", "limits.cpu", "requests.memory", "Pod", "apps/v1", " spaces\n",
		"é <&> \"q\"", strings.Repeat("long ", 30),
		"node-role.kubernetes.io/worker", "kubernetes.io/role", "Healthy", "nodes", "beta",
	}
}

// texts are the values of texts that have a type of their own.
func texts() map[reflect.Type][]string {
	out := map[reflect.Type][]string{}
	add(out, corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, "")
	add(out, corev1.PodReady, corev1.PodInitialized, corev1.PodScheduled, "x.example.com/gate")
	add(out, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)
	add(out, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown)
	add(out, corev1.NodeReady, corev1.NodeMemoryPressure)
	add(out, corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName)
	add(out, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeExternalName)
	add(out, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod)
	add(out, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, "limits.cpu", "requests.cpu", "pods")
	add(out, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever)
	add(out, batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended, batchv1.JobFailureTarget,
		batchv1.JobSuccessCriteriaMet)
	add(out, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed)
	add(out, flowcontrolv1.FlowSchemaConditionType(flowcontrolv1.FlowSchemaConditionDangling), "Other")
	add(out, autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType)
	add(out, admissionv1.Ignore, admissionv1.Fail)
	add(out, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
		metav1.LabelSelectorOpDoesNotExist)
	add(out, types.UID("a1"), "b2")
	return out
}

func add[T ~string](to map[reflect.Type][]string, values ...T) {
	for _, v := range values {
		to[reflect.TypeFor[T]()] = append(to[reflect.TypeFor[T]()], string(v))
	}
}

func (s *shapes) text(of reflect.Type) string {
	if values := texts()[of]; values != nil {
		return values[s.IntN(len(values))]
	}
	return words()[s.IntN(len(words()))]
}

// when returns a time in the last two years, seldom none or one in the future.
func (s *shapes) when() time.Time {
	unit := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 24 * time.Hour}[s.IntN(5)]
	switch s.IntN(10) {
	case 0:
		return time.Time{}
	case 1:
		return s.now.Add(time.Hour + time.Duration(s.IntN(100))*unit)
	}
	return s.now.Add(-time.Duration(s.IntN(300))*unit - time.Duration(s.IntN(90))*time.Second)
}

// fill fills a value.
func (s *shapes) fill(v reflect.Value, depth int) {
	switch to := v.Addr().Interface().(type) {
	case *metav1.TypeMeta, *metav1.ObjectMeta, *metav1.FieldsV1:
		return
	case *metav1.Time:
		to.Time = s.when().Truncate(time.Second)
		return
	case *metav1.MicroTime:
		to.Time = s.when().Truncate(time.Microsecond)
		return
	case *metav1.Duration:
		to.Duration = time.Duration(s.IntN(1000)) * time.Second
		return
	case *apiresource.Quantity:
		*to = apiresource.MustParse([]string{"0", "1", "100m", "1Gi", "1500M", "2.5", "1e3"}[s.IntN(7)])
		return
	case *intstr.IntOrString:
		*to = []intstr.IntOrString{intstr.FromInt32(3), intstr.FromString("50%"), intstr.FromString("http")}[s.IntN(3)]
		return
	case *runtime.RawExtension:
		to.Raw = []byte(`{"a":1}`)
		return
	case *corev1.Container:
		to.Name, to.Image = s.text(reflect.TypeFor[string]()), s.text(reflect.TypeFor[string]())
		s.fill(reflect.ValueOf(&to.RestartPolicy).Elem(), depth)
		return
	case *corev1.PodSpec:
		for _, field := range []any{
			&to.Containers, &to.InitContainers, &to.NodeName, &to.NodeSelector, &to.ReadinessGates,
		} {
			s.fill(reflect.ValueOf(field).Elem(), depth+1)
		}
		return
	case *autoscalingv2.MetricSpec:
		s.metric(v, depth)
		return
	case *autoscalingv2.MetricStatus:
		s.metric(v, depth)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if s.IntN(2) == 0 && depth < 9 {
			v.Set(reflect.New(v.Type().Elem()))
			s.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				s.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		n := []int{0, 1, 1, 2, 3, 5}[s.IntN(6)]
		if depth > 6 {
			n = min(n, 1)
		}
		if n == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			s.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range s.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			s.fill(key, depth+1)
			s.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(s.text(v.Type()))
	case reflect.Bool:
		v.SetBool(s.IntN(2) == 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt([]int64{0, 0, 1, 2, 5, 80, 3600}[s.IntN(7)])
	case reflect.Uint8:
		v.SetUint(uint64(s.IntN(256)))
	}
}

// metric fills a metric of an autoscaler. The API server crashes the request if its source is
// missing.
func (s *shapes) metric(v reflect.Value, depth int) {
	sources := []string{"Object", "Pods", "Resource", "ContainerResource", "External"}
	kind := sources[s.IntN(len(sources))]
	v.FieldByName("Type").SetString(kind)
	source := v.FieldByName(kind)
	source.Set(reflect.New(source.Type().Elem()))
	s.fill(source.Elem(), depth+1)
}

// meta fills the metadata of an object with a name.
func (s *shapes) meta(m *metav1.ObjectMeta, namespace, name string) {
	m.Name = name
	m.Namespace = namespace
	m.UID = types.UID("uid-of-" + name)
	m.Generation = int64(s.IntN(5))
	m.CreationTimestamp = metav1.NewTime(s.when().Truncate(time.Second))
	for _, field := range []any{&m.Labels, &m.Annotations} {
		s.fill(reflect.ValueOf(field).Elem(), 1)
	}
	if s.IntN(6) == 0 {
		m.DeletionTimestamp = &metav1.Time{Time: s.now.Add(-time.Minute).Truncate(time.Second)}
		m.Finalizers = []string{"example.com/keep"}
	}
	if s.IntN(3) == 0 {
		yes := s.IntN(2) == 0
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: s.text(reflect.TypeFor[string]()),
			Kind:       "ReplicaSet",
			Name:       "owner",
			UID:        "o",
			Controller: &yes,
		}}
	}
}
