//go:build linux

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/kubelet"
	"github.com/kubecdc/kubecdc/test/wait"
)

const namespace = "kubelet"

// hostImage returns an image with the shell of this machine.
func hostImage(string) (kubelet.Image, error) {
	image := kubelet.Image{Entrypoint: []string{"/bin/sh", "-c"}, User: 65532, Files: map[string]string{}}
	for _, dir := range []string{"/bin", "/usr", "/lib", "/lib64"} {
		if _, err := os.Stat(dir); err == nil {
			image.Files[dir] = dir
		}
	}
	return image, nil
}

// world is a control plane with one node.
type world struct {
	*kubelet.Kubelet
	client kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane and containers, which takes seconds")
	}
	if err := kubelet.Available(); err != nil {
		t.Skip(err)
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	config := cluster.Config(controlplane.Admin)
	w := &world{}
	w.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// A Pod reaches the API server at the address of its certificate, and nothing else.
	api := strings.TrimPrefix(cluster.APIServerURL(0), "https://")
	w.Kubelet, err = kubelet.New(kubelet.Options{
		Config: config, Nodes: []string{"node-1"}, Dir: t.TempDir(), Image: hostImage,
		Routes: map[string]string{"10.96.0.1:443": api}, Hosts: map[string]string{"api.example": "10.96.0.1"},
		APIServerHost: "10.96.0.1", APIServerPort: "443",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var g errgroup.Group
	g.Go(func() error { return w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(g.Wait(), w.Errors()); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := w.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return w
}

// create creates a Pod that runs the script.
func (w *world) create(t *testing.T, name, script string, change func(*corev1.Pod)) {
	t.Helper()
	yes := true
	no := false
	user := int64(65532)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes,
				RunAsUser:    &user,
				RunAsGroup:   &user,
				FSGroup:      &user,
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "any", Args: []string{script},
				SecurityContext: &corev1.SecurityContext{
					ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{
						Drop: []corev1.Capability{"ALL"},
					},
				},
			}},
		},
	}
	if change != nil {
		change(pod)
	}
	if _, err := w.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) phase(t *testing.T, name string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	wait.Eventually(t, time.Minute, func() error {
		var err error
		pod, err = w.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil &&
			pod.Status.Phase != want {
			err = fmt.Errorf("pod %s is %s: %s\n%s", name, pod.Status.Phase, pod.Status.Message, w.Log(namespace, name))
		}
		return err
	})
	return pod
}

func TestKubelet(t *testing.T) {
	w := newWorld(t)
	t.Run("restricted", func(t *testing.T) { testRestricted(t, w) })
	t.Run("environment", func(t *testing.T) { testEnvironment(t, w) })
	t.Run("volumes", func(t *testing.T) { testVolumes(t, w) })
	t.Run("ready", func(t *testing.T) { testReady(t, w) })
	t.Run("ends", func(t *testing.T) { testEnds(t, w) })
}

// testRestricted checks that the rights removed by a securityContext are gone.
func testRestricted(t *testing.T, w *world) {
	w.create(t, "restricted", `id -u; id -g; hostname; echo $$$$
touch /made 2>&1
grep -E "^(CapEff|CapBnd|NoNewPrivs)" /proc/self/status
cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo
ls -A /`, nil)
	w.phase(t, "restricted", corev1.PodSucceeded)
	log := w.Log(namespace, "restricted")
	for _, want := range []string{
		"65532\n65532\nrestricted\n1\n", "Read-only file system", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
		"\n" + namespace + "\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in what the container says:\n%s", want, log)
		}
	}
	if strings.Contains(log, "\nhome\n") || strings.Contains(log, "\ntmp\n") {
		t.Errorf("the container sees this machine's root directory:\n%s", log)
	}

	w.create(t, "root", "true", func(p *corev1.Pod) { *p.Spec.SecurityContext.RunAsUser = 0 })
	wait.Eventually(t, time.Minute, func() error {
		if err := w.Errors(); err == nil || !strings.Contains(err.Error(), "runAsNonRoot") {
			return fmt.Errorf("a root user with runAsNonRoot: %w", err)
		}
		return nil
	})
	w.Forget()
}

func testEnvironment(t *testing.T, w *world) {
	w.create(t, "environment", "", func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("512Mi")}
		field := func(path string) *corev1.EnvVarSource {
			return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
		}
		c.Env = []corev1.EnvVar{
			{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				Resource: "limits.memory",
			}}},
			{Name: "NODE", ValueFrom: field("spec.nodeName")},
			{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
			{Name: "TWICE", Value: "$(NODE)-$(NODE)-$$(NODE)"},
		}
		c.Args[0] = `echo $MEMORY $NODE $LABEL "$TWICE"; echo '$(NODE)' '$(MISSING)'`
	})
	w.phase(t, "environment", corev1.PodSucceeded)
	if log, want := w.Log(namespace, "environment"),
		"536870912 node-1 environment node-1-node-1-$(NODE)\nnode-1 $(MISSING)\n"; !strings.HasSuffix(log, want) {
		t.Errorf("log %q, want its end to be %q", log, want)
	}
}

func testVolumes(t *testing.T, w *world) {
	_, err := w.client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"a": "of-a", "b": "of-b"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mode := int32(0o440)
	w.create(t, "volumes",
		`ls /secret; cat /secret/here; stat -c %a-%g /secret/here; echo x > /secret/here; echo kept > /empty/f && cat /empty/f`,
		func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{
				{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: "secret", DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: "a", Path: "here"}},
				}}},
				{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/secret"}, {
				Name:      "empty",
				MountPath: "/empty",
			}}
		})
	w.phase(t, "volumes", corev1.PodSucceeded)
	log := w.Log(namespace, "volumes")
	if !strings.Contains(log, "here\nof-a440-65532\n") || strings.Contains(log, "of-b") ||
		!strings.Contains(log, "kept\n") ||
		!strings.Contains(log, "/secret/here: ") {
		t.Errorf("log:\n%s", log)
	}
}

// testReady has a Pod whose probe is answered by the test: only the Pod's own network has the
// probed address.
func testReady(t *testing.T, w *world) {
	answer := httptest.NewServer(http.NotFoundHandler()) // on an address of this machine, not of the Pod
	defer answer.Close()
	w.create(t, "ready", "exec sleep 600", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{
				Path: "/", Port: intstr.FromInt(answer.Listener.Addr().(*net.TCPAddr).Port),
			},
		}}
	})
	pod := w.phase(t, "ready", corev1.PodRunning)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionFalse {
			t.Errorf("a Pod that listens nowhere is ready: %+v", c)
		}
	}
	if _, err := w.Dial(t.Context(), namespace, "ready", 443); err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port of the Pod on which nobody listens: %v", err)
	}
	// A container that ends by itself is started again.
	if err := w.Signal(namespace, "ready", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		p, err := w.client.CoreV1().Pods(namespace).Get(t.Context(), "ready", metav1.GetOptions{})
		if err == nil && (len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount != 1) {
			err = fmt.Errorf("status %+v", p.Status.ContainerStatuses)
		}
		return err
	})
	out, err := w.Exec(t.Context(), namespace, "ready", "/bin/sh", "-c", "id -u; cat /etc/hosts")
	if err != nil || !strings.HasPrefix(string(out), "65532\n") ||
		!strings.Contains(string(out), "10.96.0.1 api.example") {
		t.Errorf("exec: %q, %v", out, err)
	}
}

// testEnds has one Pod that ends when asked, and one that does not.
func testEnds(t *testing.T, w *world) {
	for name, script := range map[string]string{
		"willing":   `trap "exit 3" TERM; while :; do sleep 0.05; done`,
		"unwilling": `trap "" TERM; while :; do sleep 0.05; done`,
	} {
		w.create(t, name, script, nil)
		w.phase(t, name, corev1.PodRunning)
	}
	grace := int64(1)
	for _, name := range []string{"willing", "unwilling"} {
		if err := w.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{
			GracePeriodSeconds: &grace,
		}); err != nil {
			t.Fatal(err)
		}
		wait.Eventually(t, time.Minute, func() error {
			_, err := w.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("pod %s is still there: %w", name, err)
		})
	}
	found := map[string]kubelet.Termination{}
	for _, e := range w.Terminations() {
		found[e.Pod] = e
	}
	if e := found["willing"]; e.Killed || e.ExitCode != 3 || e.Took > time.Second {
		t.Errorf("a container that ends: %+v", e)
	}
	if e := found["unwilling"]; !e.Killed || e.Took < time.Second {
		t.Errorf("a container that does not end: %+v", e)
	}
}
