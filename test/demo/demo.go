package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/process"
)

// demo is one run of the command.
type demo struct {
	binary              string // kubecdc
	kubeconfig, context string // of the cluster to follow; "": the demo makes one
	limit               time.Duration
	started             time.Time
	stages              stages
	screen              *screen

	// The sources of a control plane: functions of package controlplane.
	built    func(context.Context) bool
	download func(context.Context, io.Writer) (*controlplane.Binaries, error)
	build    func(context.Context, io.Writer) (string, error)
}

// errEnded is the error of a child that ended although the demo did not stop it.
var errEnded = errors.New("ended by itself")

// grace is how long a child may take to end.
const grace = 30 * time.Second

// run shows kubecdc at work until ctx ends or the time is up. Everything it started has ended when
// it returns, in reverse order.
func (d *demo) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "kubecdc-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	d.screen.printf("\n%s\n\n", d.screen.paint(bold, "kubecdc: change data capture for Kubernetes"))
	seen := &evidence{started: d.started, stages: &d.stages}
	if err := d.show(ctx, dir, seen); err != nil {
		return err
	}
	if seen.check(true) == nil || ctx.Err() == nil { // not where Ctrl-C came before the first change
		d.screen.printf("\n  %s\n", seen)
	}
	if d.limit > 0 && ctx.Err() == nil {
		return seen.check(d.kubeconfig != "")
	}
	return nil
}

// show starts one part after the other, and ends them in reverse order.
func (d *demo) show(ctx context.Context, dir string, seen *evidence) (err error) {
	kubeconfig, kubectl := d.kubeconfig, ""
	agent := &agent{screen: d.screen, log: filepath.Join(dir, "agent.log"), data: filepath.Join(dir, "data")}
	var work []func(context.Context) error
	if kubeconfig == "" {
		kubeconfig = filepath.Join(dir, "kubeconfig")
		cluster, err := d.startCluster(ctx, kubeconfig)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		defer cluster.Stop()
		kubectl = cluster.kubectl
		work, err = d.workers(ctx, cluster, agent)
		if err != nil {
			return unlessEnded(ctx, err)
		}
	}

	// The readers of the children's output end with the children.
	var readers errgroup.Group
	defer func() { err = errors.Join(err, readers.Wait()) }()
	err = d.screen.step("starting the agent, kubecdc run, which captures what exists", func() error {
		return agent.start(ctx, d.binary, kubeconfig, d.context, &readers)
	})
	if err != nil {
		return unlessEnded(ctx, err)
	}
	d.stages.end("agent started", time.Now())
	defer func() { err = errors.Join(err, d.end("the agent: it drains its queue", agent.child)) }()

	tail, err := d.startTail(agent.data, filepath.Join(dir, "tail.log"), seen, &readers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end("kubecdc tail", tail)) }()

	d.invite(kubeconfig, kubectl, agent.data)
	running, finish := context.WithCancel(ctx)
	defer finish()
	if d.limit > 0 {
		defer time.AfterFunc(d.limit, finish).Stop()
	}
	g, gctx := errgroup.WithContext(running)
	g.Go(func() error { return untilEnd(gctx, agent.child) })
	g.Go(func() error { return untilEnd(gctx, tail) })
	for _, f := range work {
		g.Go(func() error { return f(gctx) })
	}
	err = g.Wait()
	d.screen.printf("\n")
	return unlessEnded(running, err)
}

// unlessEnded returns err, or nil if ctx has ended, because that is the cause then.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// untilEnd returns when ctx ends, or with an error when the child ends before.
func untilEnd(ctx context.Context, child *process.Child) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-child.Done():
		return child.Failed(errEnded)
	}
}

func (d *demo) end(what string, child *process.Child) error {
	return d.screen.step("ending "+what, func() error {
		err := child.Stop(grace)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
			return nil // just started, before it handled the signal
		}
		return err
	})
}

// cluster is the cluster of the demo itself.
type cluster struct {
	*controlplane.Cluster
	noControllerManager bool
	kubectl             string // Its path; "" if the control plane has none.
}

func (d *demo) startCluster(ctx context.Context, kubeconfig string) (*cluster, error) {
	opts, what, err := d.controlPlane(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{noControllerManager: opts.NoControllerManager}
	err = d.screen.step("starting "+what, func() (err error) {
		c.Cluster, err = controlplane.Start(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.stages.end("control plane started", time.Now())
	err = c.WriteKubeconfig(kubeconfig, controlplane.Admin)
	if err == nil && (opts.Binaries == nil || opts.Binaries.HasKubectl()) {
		c.kubectl = filepath.Join(filepath.Dir(kubeconfig), "kubectl")
		err = c.WriteKubectl(c.kubectl)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// controlPlane returns the options of the control plane, and their description. It takes the first
// that it finds: the binaries of KUBEBUILDER_ASSETS, those on PATH, a control plane that was built
// before, downloaded binaries, a control plane that it builds.
func (d *demo) controlPlane(ctx context.Context) (opts controlplane.Options, what string, err error) {
	opts = controlplane.Options{
		Output: d.screen,
		// The demo's node sends no heartbeats.
		ControllerManagerArgs: []string{"--controllers=*,-node-lifecycle-controller"},
	}
	opts.Binaries, err = controlplane.Installed()
	if err != nil {
		return opts, "", err
	}
	if opts.Binaries == nil && !d.built(ctx) {
		opts.Binaries, err = d.downloaded(ctx)
		if err != nil {
			return opts, "", err
		}
	}
	if opts.Binaries == nil {
		if _, err := d.build(ctx, d.screen); err != nil {
			return opts, "", err
		}
		d.stages.end("control plane compiled", time.Now())
		return opts, "etcd, kube-apiserver and kube-controller-manager", nil
	}
	if opts.Binaries.HasControllerManager() {
		return opts, "etcd, kube-apiserver and kube-controller-manager of " + opts.Binaries.Dir(), nil
	}
	opts.NoControllerManager = true
	return opts, "etcd and kube-apiserver of " + opts.Binaries.Dir(), nil
}

// downloaded returns downloaded binaries, or nil if they cannot be had. It says in one line why.
func (d *demo) downloaded(ctx context.Context) (*controlplane.Binaries, error) {
	found, err := d.download(ctx, d.screen)
	switch {
	case err == nil:
		d.stages.end("control plane downloaded", time.Now())
		return found, nil
	case ctx.Err() != nil:
		return nil, err
	}
	why, _, _ := strings.Cut(err.Error(), "\n")
	d.screen.printf("controlplane: building from source, since the download failed: %s\n", why)
	return nil, nil //nolint:nilnil // No binaries are no error: the caller builds them.
}

// workers returns the functions that change the demo's own cluster.
func (d *demo) workers(ctx context.Context, cluster *cluster, a *agent) ([]func(context.Context) error, error) {
	client, err := dynamic.NewForConfig(cluster.Config(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	node := newNode(client)
	workload := &workload{
		client: client,
		screen: d.screen,
		past: &past{
			binary: d.binary,
			screen: d.screen,
			agent:  a,
		},
		makesPods: cluster.noControllerManager,
	}
	if err := errors.Join(node.register(ctx), workload.prepare(ctx)); err != nil {
		return nil, err
	}
	return []func(context.Context) error{node.run, workload.run}, nil
}

// shownResources are the resources that tail shows of the demo's own cluster. A rollout also
// changes ReplicaSets and EndpointSlices some thirty times. These changes are on the bus as well,
// but too many to read along.
const shownResources = "ns,cm,secret,svc,deploy,pod,coupons." + couponGroup

// tailArgs returns the arguments that a person would type.
func (d *demo) tailArgs() []string {
	if d.kubeconfig != "" {
		return []string{"tail", "--diff"}
	}
	return []string{"tail", shownResources, "--diff"}
}

// startTail shows the bus in colour, as wide as the screen: all changes since the agent was
// started.
func (d *demo) startTail(data, log string, seen *evidence, readers *errgroup.Group) (*process.Child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close() // the child has its own copy
	tail, err := process.Start(process.Spec{
		Name: "kubecdc tail",
		Argv: append(append([]string{d.binary}, d.tailArgs()...), "--op", "created,updated,deleted", "--since", "all",
			"--data-dir", data),
		Env:    d.screen.environment(),
		Log:    log,
		Stdout: w,
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	readers.Go(func() error {
		defer r.Close()
		return d.screen.show(r, seen.note)
	})
	return tail, nil
}

// invite prints what the screen shows, and what the person can do.
func (d *demo) invite(kubeconfig, kubectl, data string) {
	var b strings.Builder
	line := func(what string, commands ...string) {
		fmt.Fprintf(&b, "  %s\n", what)
		for _, c := range commands {
			fmt.Fprintf(&b, "    %s\n", d.screen.paint(bold, c))
		}
	}
	b.WriteString("\n")
	if d.kubeconfig != "" {
		line("Following the cluster of " + kubeconfig + ". The demo writes nothing to it: what changes, others change.")
	} else {
		commands := []string{"export KUBECONFIG=" + kubeconfig}
		if _, err := exec.LookPath("kubectl"); err != nil && kubectl != "" {
			commands = append(commands, "export PATH=$PATH:"+filepath.Dir(kubectl)+"   # a kubectl for you")
		}
		line("Your own changes show up too. In another terminal:",
			append(commands, "kubectl create configmap hello --from-literal=who=me")...)
	}
	line("All that was captured, what existed before included:", d.binary+" tail --since all --data-dir "+data)
	line("What changed in the last minute, and what was there before it:",
		d.binary+" history all --since 1m --data-dir "+data, d.binary+" get all --at 1m --data-dir "+data)
	line("What you see here, until Ctrl-C ends all of it:",
		d.binary+" "+strings.Join(d.tailArgs(), " ")+" --data-dir "+data)
	d.screen.printf("%s", &b)
}
