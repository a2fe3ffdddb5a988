// Command demo shows kubecdc at work: it starts a control plane, a JetStream and the agent on 127.0.0.1, changes a few
// objects, and prints the records as they arrive. Ctrl-C ends all of it, as does the end of DEMO_SECONDS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	agent := flag.String("agent", "../bin/kubecdc", "the agent's binary (make build)")
	flag.Parse()
	if err := run(ctx, *agent, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// errOver ends a demo whose time is up.
var errOver = errors.New("the demo is over")

func run(ctx context.Context, agent string, stdout, stderr io.Writer) (err error) {
	seconds, err := demoSeconds()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kubecdc-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	step(stderr, "starting etcd, kube-apiserver and kube-controller-manager")
	cluster, err := controlplane.Start(ctx, controlplane.Options{Output: stderr})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, controlplane.Admin); err != nil {
		return err
	}

	step(stderr, "starting a JetStream and the agent")
	bus, err := startJetStream(filepath.Join(dir, "jetstream"))
	if err != nil {
		return err
	}
	defer func() {
		bus.Shutdown()
		bus.WaitForShutdown()
	}()

	running, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	if seconds > 0 {
		timer := time.AfterFunc(seconds, func() { finish(errOver) })
		defer timer.Stop()
	}
	g, gctx := errgroup.WithContext(running)
	g.Go(func() error { return runAgent(gctx, agent, dir, kubeconfig, bus.ClientURL()) })
	records := newPrinter(stdout)
	g.Go(func() error { return show(gctx, bus.ClientURL(), records) })
	g.Go(func() error { return work(gctx, cluster.Config(controlplane.Admin), stderr) })
	fmt.Fprintf(stderr, "\nYour own changes show up too:\n  export KUBECONFIG=%s\nThe records are on %s, stream KUBECDC. Ctrl-C ends all.\n\n",
		kubeconfig, bus.ClientURL())
	if err := g.Wait(); err != nil && !errors.Is(err, errOver) && !errors.Is(err, context.Canceled) {
		return err
	}
	if seconds > 0 && records.printed == 0 {
		return errors.New("no record has arrived")
	}
	step(stderr, "ended")
	return nil
}

// demoSeconds is how long the demo runs, 0: until Ctrl-C.
func demoSeconds() (time.Duration, error) {
	v := os.Getenv("DEMO_SECONDS")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("DEMO_SECONDS: must be a whole number of seconds, got %q", v)
	}
	return time.Duration(n) * time.Second, nil
}

func step(w io.Writer, what string) { fmt.Fprintf(w, "demo: %s\n", what) }

func startJetStream(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start a JetStream: %w", err)
	}
	s.Start() // returns once it listens
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, errors.New("start a JetStream: not ready after 10 s")
	}
	return s, nil
}

// configuration is the agent's file for the demo.
const configuration = `apiVersion: kubecdc.dev/v1
cluster: demo
watch:
  - resources: [deployments.apps, replicasets.apps, pods, configmaps, secrets]
    namespaces: [%s]
bus:
  nats:
    url: %s
server: {address: "127.0.0.1:0"}
log: {level: warn, format: text}
`

// runAgent runs the agent until ctx ends and it has drained.
func runAgent(ctx context.Context, binary, dir, kubeconfig, bus string) error {
	file := filepath.Join(dir, "kubecdc.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, namespace, bus), 0o600); err != nil {
		return err
	}
	agent, err := process.Start(process.Spec{
		Name: "kubecdc", Argv: []string{binary, "run", "--config", file, "--kubeconfig", kubeconfig}, Log: filepath.Join(dir, "agent.log"),
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-agent.Done():
	}
	return agent.Stop(30 * time.Second)
}
