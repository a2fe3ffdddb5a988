package checkpoint_test

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// The state has the time of the last save, and for how long there has been something to save. The
// metric for alerts has the same age.
func TestAgeOfACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		reg := prometheus.NewRegistry()
		<-time.After(time.Hour)
		k := checkpoint.NewKeeper(m, us, slog.New(slog.DiscardHandler), reg)
		<-time.After(10 * time.Second)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := k.State(); !s.Saved.IsZero() {
			t.Errorf("saved at %s, want a zero time: nothing was saved yet", s.Saved)
		}
		stop := run(t, k)
		pods := informerAt(1, 1)
		k.Track("pods", pods.position, nil)
		began := time.Now()
		<-time.After(10 * time.Minute)
		checkAge(t, "all is saved", k, reg, 0, 5*time.Second)
		if s := k.State(); s.Saved.Before(began) || s.Saved.After(began.Add(5*time.Second)) {
			t.Errorf("saved at %s, want within 5 s after %s", s.Saved, began)
		}
		m.fail(errors.New("disk full"))
		pods.set(2, 2)
		<-time.After(10 * time.Minute)
		checkAge(t, "saves fail", k, reg, 10*time.Minute, 10*time.Minute+5*time.Second)
		m.fail(nil)
		<-time.After(time.Minute)
		checkAge(t, "saved again", k, reg, 0, 5*time.Second)
		if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// checkAge checks for how long there has been something to save.
func checkAge(t *testing.T, what string, k *checkpoint.Keeper, reg *prometheus.Registry, least, most time.Duration) {
	t.Helper()
	if age := k.State().Unsaved; age < least || age > most {
		t.Errorf("%s: unsaved for %s, want %s to %s", what, age, least, most)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubecdc_checkpoint_age_seconds" {
			continue
		}
		age := f.GetMetric()[0].GetGauge().GetValue()
		if age < least.Seconds() || age > most.Seconds() {
			t.Errorf("%s: the metric is %g s, want %s to %s", what, age, least, most)
		}
		return
	}
	t.Errorf("%s: no metric kubecdc_checkpoint_age_seconds", what)
}
