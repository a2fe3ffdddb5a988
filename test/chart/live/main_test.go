package live_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/chart"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/suite"
)

// world is shared by all tests.
type world struct {
	*controlplane.Cluster
	dir        string
	kubeconfig string
	audit      *auditLog
	config     *rest.Config
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	mapper     meta.ResettableRESTMapper
	helm       string
	chart      string
	agent      string // the binary

	natsOnce sync.Once
	natsPath string
	natsErr  error
}

var w *world

func TestMain(m *testing.M) {
	// Discard client-go's messages about requests that end with their test.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if err := suite.Begin(4); err != nil {
		panic(err)
	}
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "chart: skipped: -short, and the tests start a control plane and containers")
		os.Exit(0)
	}
	os.Exit(suite.Tests(func() int { return run(m) }).Run())
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	var err error
	w, err = newWorld(ctx)
	if w != nil {
		defer w.stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		return 1
	}
	return m.Run()
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`

func newWorld(ctx context.Context) (_ *world, err error) {
	begin := time.Now()
	say := func(what string) {
		fmt.Fprintf(os.Stderr, "chart: %s (%s)\n", what, time.Since(begin).Round(time.Second))
	}
	w := &world{}
	w.dir, err = os.MkdirTemp("", "kubecdc-chart-")
	if err != nil {
		return nil, err
	}
	w.chart, err = chart.Dir()
	if err != nil {
		return w, err
	}
	w.helm, err = chart.Helm(ctx, os.Stderr)
	if err != nil {
		return w, err
	}
	say("building the agent")
	w.agent, err = build.AgentIn(ctx, w.dir, "CGO_ENABLED=0")
	if err != nil {
		return w, err
	}
	say("starting a control plane")
	policy := filepath.Join(w.dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return w, err
	}
	w.audit = &auditLog{path: filepath.Join(w.dir, "audit.log")}
	w.Cluster, err = controlplane.Start(ctx, controlplane.Options{
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + w.audit.path},
	})
	if err != nil {
		return w, err
	}
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	if err := w.WriteKubeconfig(w.kubeconfig, controlplane.Admin); err != nil {
		return w, err
	}
	w.config = w.Config(controlplane.Admin)
	w.client, err = kubernetes.NewForConfig(w.config)
	if err != nil {
		return w, err
	}
	w.dynamic, err = dynamic.NewForConfig(w.config)
	if err != nil {
		return w, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(w.config)
	if err != nil {
		return w, err
	}
	w.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	say("installing the resources of the Prometheus operator")
	if err := w.installMonitoring(ctx); err != nil {
		return w, fmt.Errorf("resources of the Prometheus operator: %w", err)
	}
	say("ready")
	return w, nil
}

func (w *world) stop() {
	if w.Cluster != nil {
		w.Stop()
	}
	_ = os.RemoveAll(w.dir)
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
