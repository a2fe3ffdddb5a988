package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// electing is a capture with an election, outside of a pod.
func electing() *capture {
	cfg := config.Default()
	cfg.LeaderElection.Enabled = true
	return &capture{
		cfg: cfg, flags: &runFlags{config: "kubecdc.yaml"}, cluster: &cluster{rest: &rest.Config{Host: "https://127.0.0.1:1"}},
		log: slog.New(slog.DiscardHandler), reg: prometheus.NewRegistry(),
	}
}

// Outside of a pod neither the Lease's namespace nor a checkpoint for all replicas is known.
func TestElectionSaysWhatItLacks(t *testing.T) {
	c := electing()
	for _, step := range []struct {
		want   string
		change func()
	}{
		{"leaderElection.namespace: name the namespace of the Lease", func() { c.cfg.LeaderElection.Namespace = "cdc" }},
		{"checkpoint.configMap: name one", func() { c.cfg.Checkpoint.ConfigMap = &config.CheckpointConfigMap{Namespace: "cdc", Name: "c"} }},
	} {
		if _, err := c.newElector(); err == nil || !strings.HasPrefix(err.Error(), step.want) {
			t.Errorf("%v, want %s…", err, step.want)
		}
		step.change()
	}
	e, err := c.newElector()
	if err != nil || e == nil {
		t.Fatal(err)
	}

	pod := electing()
	pod.cluster.namespace = "kubecdc"
	if e, err := pod.newElector(); err != nil || e == nil {
		t.Errorf("in a pod: %v", err)
	}
	lease, ok := pod.leaseName()
	if d := cmp.Diff(informers.Name{Group: "coordination.k8s.io", Resource: "leases", Namespace: "kubecdc", Name: "kubecdc"}, lease); !ok || d != "" {
		t.Error(d)
	}

	pod.cfg.LeaderElection.Enabled = false
	if e, err := pod.newElector(); err != nil || e != nil || pod.fence() != nil {
		t.Errorf("without an election: %v, %v", e, err)
	}
	if _, ok := pod.leaseName(); ok {
		t.Error("without an election there is a Lease")
	}
}

func TestIdentityIsOfOneProcess(t *testing.T) {
	host := func() (string, error) { return "kubecdc-7d9f", nil }
	a, b := newIdentity(host), newIdentity(host)
	if a == b || !strings.HasPrefix(a, "kubecdc-7d9f_") {
		t.Errorf("%s, %s", a, b)
	}
	if n := newIdentity(func() (string, error) { return "", errors.New("none") }); !strings.HasPrefix(n, "kubecdc_") {
		t.Error(n)
	}
}

// recorder is a relay's target.
type recorder struct {
	relay.Target
	delivered int
}

func (r *recorder) Deliver(context.Context, *relay.Record) error {
	r.delivered++
	return nil
}

type lockedFence struct{ err error }

func (f *lockedFence) Pass(context.Context) error { return f.err }

func TestRelaysDeliverOnlyWhileLeading(t *testing.T) {
	f, r := new(lockedFence), new(recorder)
	target := fenced{r, f}
	if err := target.Deliver(t.Context(), new(relay.Record)); err != nil || r.delivered != 1 {
		t.Errorf("%d delivered, %v", r.delivered, err)
	}
	f.err = errors.New("another leads")
	if err := target.Deliver(t.Context(), new(relay.Record)); !errors.Is(err, f.err) || r.delivered != 1 {
		t.Errorf("%d delivered, %v", r.delivered, err)
	}
}
