//go:build linux

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// lookEvery is how often Pods are listed, and probeEvery how often they are probed, independent
	// of their probes' settings.
	lookEvery  = 50 * time.Millisecond
	probeEvery = 100 * time.Millisecond

	heartbeatEvery = 10 * time.Second
)

// Image is the content of a container image.
type Image struct {
	Entrypoint, Cmd []string
	User            int64             // without one in the securityContext
	Files           map[string]string // path in the image: file or directory here
}

// Options of New.
type Options struct {
	Config *rest.Config // an administrator's
	Nodes  []string     // at least one
	Dir    string       // data of the nodes and Pods, removed by the caller

	// Image returns the image of a container, or an error if there is none.
	Image func(name string) (Image, error)

	// Routes are the addresses that Pods can reach: "address:port" inside to "address:port" here.
	// Inside, addresses of 10.0.0.0/8.
	Routes map[string]string
	// Hosts are names that Pods can resolve, to addresses inside.
	Hosts map[string]string
	// APIServer is the address of the Service "kubernetes", inside.
	APIServerHost, APIServerPort string
}

// Termination describes the end of a container that was asked to end.
type Termination struct {
	Namespace, Pod, Container string
	Grace, Took               time.Duration
	Killed                    bool // it did not end within Grace
	ExitCode                  int
}

// Kubelet is the kubelet of all nodes, and the scheduler.
type Kubelet struct {
	opts   Options
	client kubernetes.Interface

	mu    sync.Mutex
	pods  map[types.UID]*pod
	ended []Termination
	errs  []error
	turn  int // of the nodes
}

// New returns a Kubelet without starting anything.
func New(o Options) (*Kubelet, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &Kubelet{opts: o, client: client, pods: map[types.UID]*pod{}}, nil
}

// Run registers the nodes and runs Pods until ctx ends, which kills them. It returns an error if
// the API server does not answer at the start.
func (k *Kubelet) Run(ctx context.Context) error {
	for _, name := range k.opts.Nodes {
		if err := k.register(ctx, name); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			for _, name := range k.opts.Nodes {
				if err := k.heartbeat(ctx, name); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
					k.report(err)
				}
			}
		}
	})
	g.Go(func() error {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			for _, p := range k.look(ctx) {
				g.Go(func() error {
					// Errors in a namespace that is being deleted are expected.
					if err := p.run(ctx); err != nil && ctx.Err() == nil &&
						!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
						k.report(fmt.Errorf("pod %s/%s: %w", p.object.Namespace, p.object.Name, err))
					}
					return nil
				})
			}
		}
	})
	return g.Wait()
}

// look returns the new Pods, and starts the removal of deleted ones.
func (k *Kubelet) look(ctx context.Context) []*pod {
	list, err := k.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil // retried at the next tick
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var fresh []*pod
	seen := map[types.UID]bool{}
	for i := range list.Items {
		o := &list.Items[i]
		seen[o.UID] = true
		p := k.pods[o.UID]
		if p == nil {
			if o.Spec.NodeName != "" && !slices.Contains(k.opts.Nodes, o.Spec.NodeName) {
				continue // not ours
			}
			if len(o.Spec.SchedulingGates) > 0 {
				continue // not to be bound yet
			}
			p = newPod(k, o)
			k.pods[o.UID] = p
			fresh = append(fresh, p)
		}
		if o.DeletionTimestamp != nil {
			p.remove(*o.DeletionGracePeriodSeconds)
		}
	}
	for uid, p := range k.pods {
		if !seen[uid] { // deleted by force, or run's last act
			p.remove(0)
			if p.over() {
				delete(k.pods, uid)
			}
		}
	}
	return fresh
}

func (k *Kubelet) register(ctx context.Context, name string) error {
	_, err := k.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return k.heartbeat(ctx, name)
}

func (k *Kubelet) heartbeat(ctx context.Context, name string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(
		`{"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"110"},"allocatable":{"cpu":"8","memory":"32Gi","pods":"110"},`+
			`"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%[1]q,"lastTransitionTime":%[1]q}]}}`,
		now)
	_, err := k.client.CoreV1().Nodes().
		Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("status of node %s: %w", name, err)
	}
	return nil
}

// nodeFor returns the node that the Pod names, as Pods of a DaemonSet do, or else the next in turn.
func (k *Kubelet) nodeFor(o *corev1.Pod) (string, error) {
	if a := o.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Key == "metadata.name" && len(f.Values) == 1 && slices.Contains(k.opts.Nodes, f.Values[0]) {
					return f.Values[0], nil
				}
			}
		}
		return "", errors.New("affinity to no node of this kubelet")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn++
	return k.opts.Nodes[k.turn%len(k.opts.Nodes)], nil
}

func (k *Kubelet) report(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

// Errors returns why Pods could not run.
func (k *Kubelet) Errors() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.errs...)
}

// Forget clears the errors so far.
func (k *Kubelet) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = nil
}

// Terminations returns the containers that were asked to end, in that order.
func (k *Kubelet) Terminations() []Termination {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ended)
}

// pod returns the running Pod of that name.
func (k *Kubelet) pod(namespace, name string) (*pod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.object.Namespace == namespace && p.object.Name == name && !p.over() {
			return p, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s: does not run here", namespace, name)
}

// Client returns a client for requests to the Pod, whatever host their URLs name.
func (k *Kubelet) Client(namespace, name string) (*http.Client, error) {
	p, err := k.pod(namespace, name)
	if err != nil {
		return nil, err
	}
	return p.client(10 * time.Second), nil
}

// Exec runs a command in the namespaces of the Pod's container, as its user, and returns its
// output.
func (k *Kubelet) Exec(ctx context.Context, namespace, name string, argv ...string) ([]byte, error) {
	p, err := k.pod(namespace, name)
	if err != nil {
		return nil, err
	}
	return p.exec(ctx, argv)
}

// Signal sends a signal to the Pod's containers.
func (k *Kubelet) Signal(namespace, name string, s syscall.Signal) error {
	p, err := k.pod(namespace, name)
	if err != nil {
		return err
	}
	return p.signal(s)
}

// Log returns the end of the output of the Pod's containers, including earlier ones.
func (k *Kubelet) Log(namespace, name string) string {
	files, _ := filepath.Glob(filepath.Join(k.opts.Dir, "logs", namespace+"_"+name+"_*"))
	var b strings.Builder
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "== %s\n%s", filepath.Base(f), text)
	}
	return b.String()
}

// HostPath returns the local path of a path of the node.
func (k *Kubelet) HostPath(node, path string) string {
	return filepath.Join(k.opts.Dir, "nodes", node, filepath.Clean("/"+path))
}

// Dial connects to a port of the Pod.
func (k *Kubelet) Dial(ctx context.Context, namespace, name string, port int) (net.Conn, error) {
	p, err := k.pod(namespace, name)
	if err != nil {
		return nil, err
	}
	if p.network == nil {
		return nil, fmt.Errorf("pod %s/%s: has no network yet", namespace, name)
	}
	return p.network.dial(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
