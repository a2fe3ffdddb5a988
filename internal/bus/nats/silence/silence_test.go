package silence_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/nats/silence"
)

const limit = 10 * time.Second

// ends reads until an error, and returns it with the time that it took.
func ends(c net.Conn) (time.Duration, error) {
	begin := time.Now()
	for b := make([]byte, 1); ; {
		if _, err := c.Read(b); err != nil {
			return time.Since(begin), err
		}
	}
}

// pipe returns the limited end of a connection, and the other end.
func pipe(t *testing.T) (limited, other net.Conn) {
	t.Helper()
	near, other := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), other.Close() })
	return silence.Limit(near, limit), other
}

func TestReadEndsAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe(t)
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("never read"))
			waiting <- err
		}()
		took, err := ends(c)
		if took != limit || !errors.Is(err, silence.ErrSilent) {
			t.Errorf("reading ended after %s: %v", took, err)
		}
		if err := <-waiting; err == nil {
			t.Error("the write goes on")
		}
		if _, err := other.Write([]byte("x")); err == nil {
			t.Error("the connection is open")
		}
	})
}

// Data of any kind extends the limit.
func TestDataExtendsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe(t)
		go func() {
			for range 5 {
				<-time.After(limit - time.Second)
				_, _ = other.Write([]byte("x"))
			}
		}()
		took, err := ends(c)
		if want := 5*(limit-time.Second) + limit; took != want || !errors.Is(err, silence.ErrSilent) {
			t.Errorf("reading ended after %s, want %s: %v", took, want, err)
		}
	})
}

// A handshake has a deadline of its own. When it is removed, a Read may be under way already.
func TestDeadlineOfTheCaller(t *testing.T) {
	for _, later := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := pipe(t)
			if err := c.SetDeadline(time.Now().Add(later)); err != nil {
				t.Fatal(err)
			}
			took, err := ends(c)
			if took != later || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, silence.ErrSilent) {
				t.Errorf("reading ended after %s, want %s: %v", took, later, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(t)
		if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = c.SetDeadline(time.Time{}) })
		took, err := ends(c)
		if took != limit+time.Second || !errors.Is(err, silence.ErrSilent) {
			t.Errorf("reading ended after %s: %v", took, err)
		}
	})
}

func TestWithoutPingsThereIsNoLimit(t *testing.T) {
	near, _ := net.Pipe()
	if got := silence.Limit(near, silence.After(0)); got != near {
		t.Errorf("got %v", got)
	}
	if d := cmp.Diff(limit, silence.After(silence.Ping)); d != "" {
		t.Error(d)
	}
}
