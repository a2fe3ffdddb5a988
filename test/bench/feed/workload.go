package feed

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// workloads is the number of Deployments that the pods belong to. With several, adjacent objects on
// the watch differ in more than digits and the few patched fields, as in a cluster.
const workloads = 12

// Placeholders at which a template is cut. Each has the width of its replacement.
const (
	holeSuffix    = "NNNNN"
	holeUID       = "UUUUUUUU-UUUU-UUUU-UUUU-UUUUUUUUUUUU"
	holeVersion   = "987654321"
	holeAddress   = "10.255.255.255"
	holeHost      = "ip-10-254-254-254"
	holeContainer = "CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC"
	holeChanged   = "2001-02-03T04:05:06Z"
	holeSent      = "1234567890123456789"
)

// SentAnnotation has the time at which the update was released, in nanoseconds since 1970. A
// subscriber computes the latency from it.
const SentAnnotation = "bench.kubecdc.dev/sent"

// paddingAnnotation enlarges a pod by Options.Padding.
const paddingAnnotation = "bench.kubecdc.dev/padding"

var (
	words = [workloads]string{
		"accounts", "billing", "catalogue", "checkout", "delivery", "frontend",
		"inventory", "ledger", "notify", "payments", "recommend", "search",
	}
	namespaces = [workloads]string{
		"identity", "identity", "shop", "shop", "shop", "shop", "stock", "stock", "stock", "treasury", "web", "web",
	}
	started = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
)

// pod is a pod of workload w as the API server would serve it, with holes where pods and versions
// differ. Written with the API's own types so that the order of keys is the server's.
func pod(w int, ready bool, padding int) ([]byte, error) {
	name := words[w]
	hash := fmt.Sprintf("%08x%02d", 0x7c9f6d5b-w*0x01030507, 10+w)
	born := metav1.NewTime(started.Add(time.Duration(w) * 17 * time.Minute))
	changed, err := time.Parse(time.RFC3339, holeChanged)
	if err != nil {
		return nil, err
	}
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              name + "-" + hash + "-" + holeSuffix,
			GenerateName:      name + "-" + hash + "-",
			Namespace:         namespaces[w],
			UID:               holeUID,
			ResourceVersion:   holeVersion,
			Generation:        1,
			CreationTimestamp: born,
			Labels: map[string]string{
				"app.kubernetes.io/name":     name,
				"app.kubernetes.io/part-of":  namespaces[w],
				"app.kubernetes.io/version":  fmt.Sprintf("1.%d.%d", w, 3*w),
				"pod-template-hash":          hash,
				"topology.kubernetes.io/set": fmt.Sprintf("eu-central-1%c", 'a'+w%3),
			},
			Annotations: map[string]string{
				SentAnnotation:              holeSent,
				"checksum/config":           fmt.Sprintf("%064x", 0x1f3a5b7c9d+w*7919),
				"prometheus.io/port":        fmt.Sprint(9090 + w),
				"prometheus.io/scrape":      "true",
				"kubectl.kubernetes.io/who": "ci <deploy@example.com> & friends",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-" + hash,
				UID:        types.UID(fmt.Sprintf("5f0c2a7e-91b4-4c3d-8e6f-%012x", 0xa1b2c3d4e5+w)),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			ManagedFields: managedFields(w, born, metav1.NewTime(changed)),
		},
		Spec:   spec(w),
		Status: status(w, ready, born, metav1.NewTime(changed)),
	}
	if padding > 0 {
		p.Annotations[paddingAnnotation] = strings.Repeat("all work and no play makes Jack a dull boy; ",
			padding/44+1)[:padding]
	}
	return json.Marshal(p)
}

func spec(w int) corev1.PodSpec {
	name := words[w]
	container := corev1.Container{
		Name:  name,
		Image: fmt.Sprintf("registry.example.com/%s/%s:1.%d.%d", namespaces[w], name, w, 3*w),
		Args:  []string{"serve", "--listen=:8080", "--log-level=info"},
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: int32(9090 + w), Protocol: corev1.ProtocolTCP},
		},
		Env: []corev1.EnvVar{
			{Name: "DATABASE_HOST", Value: fmt.Sprintf("pg-%d.%s.svc.cluster.local", w%4, namespaces[w])},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				APIVersion: "v1", FieldPath: "metadata.name",
			}}},
		},
		Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", 256+64*(w%5))),
			},
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(fmt.Sprintf("%dm", 50*(1+w%4))),
				corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", 128+64*(w%5))),
			},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", ReadOnly: true, MountPath: "/etc/" + name},
			{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/ready", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP,
			}},
			TimeoutSeconds:   1,
			PeriodSeconds:    10,
			SuccessThreshold: 1,
			FailureThreshold: 3,
		},
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		ImagePullPolicy:          corev1.PullIfNotPresent,
	}
	return corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name + "-config"}, DefaultMode: new(int32(420)),
			}}},
			{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					ExpirationSeconds: new(int64(3607)), Path: "token",
				}}},
				DefaultMode: new(int32(420)),
			}}},
		},
		Containers:                    []corev1.Container{container},
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64(30)),
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            name,
		DeprecatedServiceAccount:      name,
		NodeName:                      holeHost + ".eu-central-1.compute.internal",
		SecurityContext:               &corev1.PodSecurityContext{},
		SchedulerName:                 corev1.DefaultSchedulerName,
		Tolerations: []corev1.Toleration{
			{
				Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
			},
			{
				Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
			},
		},
		Priority:           new(int32(0)),
		EnableServiceLinks: new(true),
		PreemptionPolicy:   new(corev1.PreemptLowerPriority),
	}
}

func status(w int, ready bool, born, changed metav1.Time) corev1.PodStatus {
	condition := corev1.ConditionTrue
	var reason, message string
	if !ready {
		condition, reason = corev1.ConditionFalse, "ContainersNotReady"
		message = "containers with unready status: [" + words[w] + "]"
	}
	host := "10.254.254.254" // never changes with the pod's host: one digit less to patch, nobody reads it
	return corev1.PodStatus{
		ObservedGeneration: 1,
		Phase:              corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			{Type: "PodReadyToStartContainers", Status: corev1.ConditionTrue, LastTransitionTime: born},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: born},
			{Type: corev1.PodReady, Status: condition, LastTransitionTime: changed, Reason: reason, Message: message},
			{
				Type:               corev1.ContainersReady,
				Status:             condition,
				LastTransitionTime: changed,
				Reason:             reason,
				Message:            message,
			},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: born},
		},
		HostIP:    host,
		HostIPs:   []corev1.HostIP{{IP: host}},
		PodIP:     holeAddress,
		PodIPs:    []corev1.PodIP{{IP: holeAddress}},
		StartTime: &born,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name:         words[w],
			State:        corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: born}},
			Ready:        ready,
			Started:      new(true),
			RestartCount: int32(w % 3),
			Image:        fmt.Sprintf("registry.example.com/%s/%s:1.%d.%d", namespaces[w], words[w], w, 3*w),
			ImageID: fmt.Sprintf("registry.example.com/%s/%s@sha256:%064x", namespaces[w], words[w],
				0x3c5e7f9a1b+w*104729),
			ContainerID: "containerd://" + holeContainer + holeContainer,
		}},
		QOSClass: corev1.PodQOSBurstable,
	}
}

// managedFields is a third of a real pod.
func managedFields(w int, born, changed metav1.Time) []metav1.ManagedFieldsEntry {
	created := fmt.Sprintf(`{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:prometheus.io/port":{},`+
		`"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},`+
		`"f:app.kubernetes.io/part-of":{},"f:app.kubernetes.io/version":{},"f:pod-template-hash":{}},`+
		`"f:ownerReferences":{".":{},"k:{\"uid\":\"5f0c2a7e-91b4-4c3d-8e6f-%012x\"}":{}}},"f:spec":{"f:containers":{`+
		`"k:{\"name\":\"%s\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"DATABASE_HOST\"}":{".":{},"f:name":{},`+
		`"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{},`+
		`"f:resources":{".":{},"f:limits":{},"f:requests":{}},"f:volumeMounts":{}}},`+
		`"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:serviceAccountName":{},"f:volumes":{}}}`,
		0xa1b2c3d4e5+w, words[w])
	kubelet := `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastTransitionTime":{},` +
		`"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},` +
		`"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},` +
		`"k:{\"ip\":\"` + holeAddress + `\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`
	return []metav1.ManagedFieldsEntry{
		{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &born, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(created),
		},
		{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Subresource: "status",
			Time: &changed, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(kubelet),
		},
	}
}
