//go:build linux

package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pod is a Pod from its first listing on. Fields without a comment belong to run.
type pod struct {
	k       *Kubelet
	object  *corev1.Pod // as first listed
	node    string
	ip      string
	dir     string
	volumes map[string]string // by name: the directory
	network *network

	mu      sync.Mutex
	removed chan struct{} // closed when the Pod is to end
	grace   time.Duration // readable once removed is closed
	running map[string]*container
	ready   map[string]bool
	starts  map[string]int
	done    chan struct{} // closed when run has returned
}

func newPod(k *Kubelet, o *corev1.Pod) *pod {
	return &pod{
		k:       k,
		object:  o,
		ip:      "10.244.0.1",
		dir:     filepath.Join(k.opts.Dir, "pods", string(o.UID)),
		volumes: map[string]string{},
		removed: make(chan struct{}),
		running: map[string]*container{},
		ready:   map[string]bool{},
		starts:  map[string]int{},
		done:    make(chan struct{}),
	}
}

// remove makes the Pod end. Later calls have no effect.
func (p *pod) remove(grace int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.removed:
	default:
		p.grace = time.Duration(grace) * time.Second
		close(p.removed)
	}
}

func (p *pod) isRemoved() bool {
	select {
	case <-p.removed:
		return true
	default:
		return false
	}
}

func (p *pod) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// run runs the Pod. It returns when the Pod's containers are gone and the API server has its
// status.
func (p *pod) run(ctx context.Context) error {
	defer close(p.done)
	if err := p.bind(ctx); err != nil {
		return err
	}
	err := p.live(ctx)
	if p.network != nil {
		p.network.close()
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return errors.Join(err, p.status(ctx, corev1.PodPending, err.Error()))
	}
	if !p.isRemoved() {
		return p.status(ctx, p.outcome(), "")
	}
	now := int64(0)
	err = p.k.client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.object.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// outcome returns the phase of a Pod whose containers have all ended by themselves.
func (p *pod) outcome() corev1.PodPhase {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.running {
		if c.code() != 0 {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

// bind does the scheduler's part.
func (p *pod) bind(ctx context.Context) error {
	p.node = p.object.Spec.NodeName
	if p.node != "" {
		return nil
	}
	var err error
	p.node, err = p.k.nodeFor(p.object)
	if err != nil {
		return err
	}
	err = p.k.client.CoreV1().Pods(p.object.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.object.Name, Namespace: p.object.Namespace, UID: p.object.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: p.node},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && p.isRemoved() {
		return nil // deleted meanwhile; live checks that
	}
	return err
}

// live runs the containers until the Pod is removed or ctx ends.
func (p *pod) live(ctx context.Context) error {
	if p.isRemoved() {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(p.k.opts.Dir, "logs"), 0o755); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	var err error
	p.network, err = newNetwork(ctx, g, p.routes())
	if err != nil {
		return errors.Join(fmt.Errorf("network: %w", err), g.Wait())
	}
	// The end of the containers also ends the forwarding.
	err = p.containers(ctx)
	p.network.close()
	return errors.Join(err, g.Wait())
}

// routes returns the routes of the Pod, except those to a port on which the Pod itself listens on
// every address.
func (p *pod) routes() map[string]string {
	out := maps.Clone(p.k.opts.Routes)
	for i := range p.object.Spec.Containers {
		for _, port := range p.object.Spec.Containers[i].Ports {
			maps.DeleteFunc(out, func(inside, _ string) bool {
				_, n, _ := net.SplitHostPort(inside)
				return n == strconv.Itoa(int(port.ContainerPort))
			})
		}
	}
	return out
}

func (p *pod) containers(ctx context.Context) error {
	for i := range p.object.Spec.InitContainers {
		if err := p.initialise(ctx, &p.object.Spec.InitContainers[i]); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range p.object.Spec.Containers {
		c := &p.object.Spec.Containers[i]
		probed, over := context.WithCancel(ctx)
		g.Go(func() error {
			defer over()
			return p.keep(ctx, c)
		})
		g.Go(func() error { return p.probe(probed, c) })
	}
	return g.Wait()
}

// initialise runs a container to its end. A failure is an error here, while a kubelet would retry:
// a chart's init containers must work at the first try.
func (p *pod) initialise(ctx context.Context, c *corev1.Container) error {
	if p.isRemoved() {
		return nil
	}
	running, err := p.start(ctx, c)
	if err != nil && p.isRemoved() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("init container %s: %w", c.Name, err)
	}
	select {
	case <-running.ended:
	case <-ctx.Done():
		running.kill()
	}
	if running.code() != 0 {
		return fmt.Errorf("init container %s: exit code %d\n%s", c.Name, running.code(),
			p.k.Log(p.object.Namespace, p.object.Name))
	}
	return nil
}

// keep runs the container, and restarts it when it ends.
func (p *pod) keep(ctx context.Context, c *corev1.Container) error {
	wait := 100 * time.Millisecond
	for !p.isRemoved() && ctx.Err() == nil {
		running, err := p.start(ctx, c)
		if err != nil && p.isRemoved() {
			return nil // its dependencies may be gone too
		}
		if err != nil {
			return fmt.Errorf("container %s: %w", c.Name, err)
		}
		p.mu.Lock()
		p.running[c.Name] = running
		p.starts[c.Name]++
		p.mu.Unlock()
		if err := p.status(ctx, corev1.PodRunning, ""); err != nil {
			p.k.report(err)
		}
		select {
		case <-ctx.Done():
			running.kill()
			return nil
		case <-p.removed:
			p.terminate(ctx, c, running)
			return nil
		case <-running.ended:
		}
		if p.object.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			return nil
		}
		back := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-p.removed:
		case <-back.C:
		}
		back.Stop()
		wait = min(2*wait, 5*time.Second)
	}
	return nil
}

func (p *pod) terminate(ctx context.Context, c *corev1.Container, running *container) {
	asked := time.Now()
	t := Termination{
		Namespace: p.object.Namespace,
		Pod:       p.object.Name,
		Container: c.Name,
		Grace:     p.grace,
	}
	running.signal(syscall.SIGTERM)
	timer := time.NewTimer(p.grace)
	defer timer.Stop()
	select {
	case <-running.ended:
	case <-timer.C:
		t.Killed = true
		running.kill()
	case <-ctx.Done():
		running.kill()
		return
	}
	t.Took, t.ExitCode = time.Since(asked), running.code()
	p.k.mu.Lock()
	p.k.ended = append(p.k.ended, t)
	p.k.mu.Unlock()
}

// probe keeps the container's readiness up to date.
func (p *pod) probe(ctx context.Context, c *corev1.Container) error {
	client := p.client(time.Second)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.removed:
			return nil
		case <-tick.C:
		}
		p.mu.Lock()
		running := p.running[c.Name]
		p.mu.Unlock()
		ready := running != nil && !running.over() && p.asked(ctx, client, c, c.ReadinessProbe) == nil
		p.mu.Lock()
		changed := ready != p.ready[c.Name]
		p.ready[c.Name] = ready
		p.mu.Unlock()
		if changed {
			if err := p.status(ctx, corev1.PodRunning, ""); err != nil {
				p.k.report(err)
			}
		}
	}
}

// asked returns nil if the answer to the probe's request is a success.
func (p *pod) asked(ctx context.Context, client *http.Client, c *corev1.Container, probe *corev1.Probe) error {
	if probe == nil {
		return nil
	}
	if probe.HTTPGet == nil {
		return errors.New("a probe of a kind that this kubelet does not know")
	}
	port := probe.HTTPGet.Port.IntValue()
	if probe.HTTPGet.Port.Type == intstr.String {
		for _, named := range c.Ports {
			if named.Name == probe.HTTPGet.Port.StrVal {
				port = int(named.ContainerPort)
			}
		}
	}
	url := fmt.Sprintf("http://%s%s", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), probe.HTTPGet.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// client returns a client for requests to the Pod, whatever host their URLs name.
func (p *pod) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if p.network == nil {
				return nil, errors.New("the Pod has no network yet")
			}
			return p.network.dial(ctx, net.JoinHostPort("127.0.0.1", port))
		},
	}}
}

// status writes the Pod's status to the API server.
func (p *pod) status(ctx context.Context, phase corev1.PodPhase, message string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := metav1.Now().Rfc3339Copy()
	all := phase == corev1.PodRunning
	s := corev1.PodStatus{
		Phase:   phase,
		Message: message,
		PodIP:   p.ip,
		HostIP:  p.ip,
		PodIPs: []corev1.PodIP{{
			IP: p.ip,
		}},
		StartTime: &now,
	}
	for i := range p.object.Spec.Containers {
		c := &p.object.Spec.Containers[i]
		ready := p.ready[c.Name] && phase == corev1.PodRunning
		all = all && ready
		started := p.starts[c.Name] > 0
		status := corev1.ContainerStatus{
			Name:         c.Name,
			Image:        c.Image,
			Ready:        ready,
			Started:      &started,
			RestartCount: int32(max(0, p.starts[c.Name]-1)),
		}
		if started {
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		} else {
			status.State.Waiting = &corev1.ContainerStateWaiting{
				Reason:  cmp.Or(map[bool]string{true: "CreateContainerError"}[message != ""], "ContainerCreating"),
				Message: message,
			}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	}
	truth := func(t corev1.PodConditionType, is bool) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, LastTransitionTime: now}
		if is {
			c.Status = corev1.ConditionTrue
		}
		s.Conditions = append(s.Conditions, c)
	}
	truth(corev1.PodScheduled, true)
	truth(corev1.PodInitialized, phase == corev1.PodRunning)
	truth(corev1.ContainersReady, all)
	truth(corev1.PodReady, all)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": s})
	if err != nil {
		return err
	}
	_, err = p.k.client.CoreV1().Pods(p.object.Namespace).
		Patch(ctx, p.object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
		return nil // gone meanwhile
	}
	if err != nil {
		return fmt.Errorf("status of pod %s/%s: %w", p.object.Namespace, p.object.Name, err)
	}
	return nil
}

func (p *pod) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.running) == 0 {
		return errors.New("no container runs")
	}
	for _, c := range p.running {
		c.signal(s)
	}
	return nil
}

// exec runs a command in the first container.
func (p *pod) exec(ctx context.Context, argv []string) ([]byte, error) {
	p.mu.Lock()
	running := p.running[p.object.Spec.Containers[0].Name]
	p.mu.Unlock()
	if running == nil || running.over() {
		return nil, errors.New("the container does not run")
	}
	return running.exec(ctx, p.network, argv)
}

// user returns the user of the container: its own, the Pod's, or the image's.
func (p *pod) user(c *corev1.Container, image *Image) (uid, gid int64, groups []uint32, err error) {
	uid = image.User
	var nonRoot *bool
	if s := p.object.Spec.SecurityContext; s != nil {
		uid, nonRoot = deref(s.RunAsUser, uid), s.RunAsNonRoot
		gid = deref(s.RunAsGroup, gid)
		if s.FSGroup != nil {
			groups = append(groups, uint32(*s.FSGroup))
		}
		for _, g := range s.SupplementalGroups {
			groups = append(groups, uint32(g))
		}
	}
	if s := c.SecurityContext; s != nil {
		uid, gid = deref(s.RunAsUser, uid), deref(s.RunAsGroup, gid)
		if s.RunAsNonRoot != nil {
			nonRoot = s.RunAsNonRoot
		}
	}
	if uid == 0 && nonRoot != nil && *nonRoot {
		return 0, 0, nil, errors.New("container has runAsNonRoot and would run as root")
	}
	return uid, gid, groups, nil
}

func deref(p *int64, otherwise int64) int64 {
	if p == nil {
		return otherwise
	}
	return *p
}
