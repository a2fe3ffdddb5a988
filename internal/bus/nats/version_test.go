package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const tooOld = "nats-server 2.9.25 is too old: use 2.10 or later"

// be makes the fake server have a version from its next connection on.
func (s *fakeServer) be(version, limits string) {
	s.behave()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.limits = version, limits
}

const plainLimits = `"max_bytes":-1,"num_replicas":1`

func TestServerThatIsTooOldIsRefused(t *testing.T) {
	s := startFakeServer(t, 1)
	s.be("2.9.25", plainLimits)
	r := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
	<-r.Ended
	if !errors.Is(r.Err, publish.ErrStream) || !strings.Contains(r.Err.Error(), tooOld) {
		t.Errorf("the bus ended with %v", r.Err)
	}
}

// A bus that runs finds an older server when it reconnects: its events wait for another one.
func TestServerThatIsTooOldAfterAReconnectIsWaitedOut(t *testing.T) {
	s := startFakeServer(t, 1)
	s.be("2.10.0", plainLimits)
	r := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	s.be("2.9.25", plainLimits)
	s.cut()
	bustest.Wait(t, "the reason", func() bool {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), tooOld)
	})
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), bustest.Event("web-1", 2, `{}`)) }()
	s.be("2.10.0", plainLimits)
	s.cut()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRelayRefusesAServerThatIsTooOld(t *testing.T) {
	s := startFakeServer(t, 1)
	s.be("2.9.25", plainLimits)
	cfg := bustest.NATSConfig("nats://" + s.l.Addr().String())
	sub, err := natsbus.Opener{Config: &cfg}.Subscribe(&driver.Relaying{Name: "hook", Log: bustest.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	bustest.Wait(t, "a connection", func() bool {
		err = sub.Open(t.Context())
		return err == nil || !strings.Contains(err.Error(), "not connected")
	})
	if err == nil || !strings.Contains(err.Error(), tooOld) {
		t.Errorf("the relay began: %v", err)
	}
	if _, err := sub.Status(t.Context()); err == nil || !strings.Contains(err.Error(), tooOld) {
		t.Errorf("the status is read: %v", err)
	}
}

func TestVersionThatLosesRecordsIsLogged(t *testing.T) {
	for _, tc := range []struct {
		version, limits string
		want            int
	}{
		{"2.12.15", `"max_bytes":1000000,"num_replicas":3`, 1},
		{"2.12.15", `"max_bytes":1000000,"num_replicas":1`, 0},
		{"2.12.15", `"max_bytes":-1,"num_replicas":3`, 0},
		{"2.14.0", `"max_bytes":1000000,"num_replicas":3`, 0},
	} {
		s := startFakeServer(t, 1)
		s.be(tc.version, tc.limits)
		r := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
		bustest.Wait(t, "the bus", func() bool { return r.Ready() == nil })
		if got := bustest.Lines(r.Log.String(), "may lose acknowledged records"); got != tc.want {
			t.Errorf("%s, %s: %d lines, want %d:\n%s", tc.version, tc.limits, got, tc.want, r.Log)
		}
		// An edit of a full stream would lose records, too.
		s.mu.Lock()
		s.full = true
		s.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Publish(ctx, bustest.Event("web-1", 1, `{}`)) }()
		bustest.Wait(t, "the advice", func() bool { return strings.Contains(r.Log.String(), "the stream is full") })
		if edit := strings.Contains(r.Log.String(), "--max-age="); edit != (tc.want == 0) {
			t.Errorf("%s, %s: to edit the stream is advised: %t\n%s", tc.version, tc.limits, edit, r.Log)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}
