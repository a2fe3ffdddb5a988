package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// electing returns an agent with an election, outside of a pod.
func electing() *agent {
	cfg := config.Default()
	cfg.LeaderElection.Enabled = true
	return &agent{
		cfg: cfg, options: &Options{Config: "kubecdc.yaml"}, cluster: &Cluster{REST: &rest.Config{
			Host: "https://127.0.0.1:1",
		}},
		log: slog.New(slog.DiscardHandler), reg: prometheus.NewRegistry(),
	}
}

// Outside of a pod there is no default for the Lease's namespace, nor for a checkpoint that all
// replicas share.
func TestElectionSaysWhatItLacks(t *testing.T) {
	c := electing()
	for _, step := range []struct {
		want   string
		change func()
	}{
		{"leaderElection.namespace: set the namespace of the Lease", func() { c.cfg.LeaderElection.Namespace = "cdc" }},
		{"checkpoint.configMap: set one", func() {
			c.cfg.Checkpoint.ConfigMap = &config.CheckpointConfigMap{Namespace: "cdc", Name: "c"}
		}},
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
	if d := cmp.Diff(
		informers.Name{Group: "coordination.k8s.io", Resource: "leases", Namespace: "kubecdc", Name: "kubecdc"},
		lease); !ok || d != "" {
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

// If the fence is shut while a receiver refuses a record, the next attempt fails, not only the next
// record.
func TestRelayedRequestsPassTheFence(t *testing.T) {
	f := new(atomicFence)
	requests := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.shut.Store(true)
		w.WriteHeader(http.StatusServiceUnavailable)
		requests <- struct{}{}
	}))
	defer receiver.Close()
	to, ok := config.TargetOf(receiver.URL)
	if !ok {
		t.Fatal("a URL is no target")
	}
	target, err := NewRelayTarget(config.Default(), to, "c", io.Discard, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- target.Run(running) }()
	done := make(chan error, 1)
	target.Publish(
		publish.NewEvent(&encode.Event{ContentType: "application/cloudevents+json", Body: []byte(`{}`)},
			func(err error) { done <- err }, nil))
	if err := <-done; !errors.Is(err, leader.ErrLost) {
		t.Errorf("ended with %v", err)
	}
	if n := len(requests); n != 1 {
		t.Errorf("%d requests, want the first alone", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// atomicFence is a fence that stays shut once shut is set.
type atomicFence struct{ shut atomic.Bool }

func (f *atomicFence) Pass(context.Context) error {
	if f.shut.Load() {
		return leader.ErrLost
	}
	return nil
}

// A deposed leader that has not ended yet is neither ready nor a standby.
func TestDeposedLeaderIsNotReady(t *testing.T) {
	c := admin.NewChecks(&deposed{})
	r := c.Look(time.Now())
	if r.Ready || r.Standby || !strings.Contains(r.Text(time.Now()), "[-] leader: this agent ends") {
		t.Errorf("%+v\n%s", r, r.Text(time.Now()))
	}
}

// deposed is the election of a leader that has been replaced.
type deposed struct{}

func (*deposed) Status() leader.Status { return leader.Status{Seen: true, Over: leader.ErrLost} }
func (*deposed) Ready() error          { return fmt.Errorf("this agent ends: %w", leader.ErrLost) }
