package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/proxy"
)

// echo starts a server that sends its name and then echoes its input.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if _, err := io.WriteString(c, name); err == nil {
					_, _ = io.Copy(c, c) // Ends with the connection.
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// start runs a proxy until the test ends.
func start(t *testing.T, backends ...string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Listen(backends...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// dial connects and reads the name of the backend.
func dial(t *testing.T, p *proxy.Proxy) (*net.TCPConn, string) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	name := make([]byte, 1)
	deadline(t, c, 10*time.Second)
	if _, err := io.ReadFull(c, name); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), string(name)
}

func deadline(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

// wantReset fails the test unless the connection ends with a reset.
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
}

func TestForwards(t *testing.T) {
	p := start(t, echo(t, "a"))
	c, _ := dial(t, p)
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Write(text)
		if err := errors.Join(err, c.CloseWrite()); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(c)
	wg.Wait()
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%d bytes came back of %d, err %v", len(got), len(text), err)
	}
}

func TestCut(t *testing.T) {
	p := start(t, echo(t, "a"))
	c, _ := dial(t, p)
	p.Cut()
	wantReset(t, c)
	dial(t, p)
}

func TestRefuse(t *testing.T) {
	p := start(t, echo(t, "a"))
	old, _ := dial(t, p)
	p.Refuse(true)
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close()
		deadline(t, c, 10*time.Second)
		wantReset(t, c)
	}
	say(t, old, "still there")
	hear(t, old, "still there")
	p.Refuse(false)
	dial(t, p)
}

func TestHold(t *testing.T) {
	p := start(t, echo(t, "a"))
	c, _ := dial(t, p)
	p.Hold(true)
	say(t, c, "x")
	deadline(t, c, 50*time.Millisecond)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read while it is held: %v", err)
	}
	// A new connection is accepted and receives nothing either.
	fresh, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	deadline(t, fresh, 50*time.Millisecond)
	if _, err := fresh.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read while it is held: %v", err)
	}
	p.Hold(false)
	deadline(t, c, 10*time.Second)
	hear(t, c, "x")
	deadline(t, fresh, 10*time.Second)
	hear(t, fresh, "a")
	// Held data is lost if the connection is cut.
	p.Hold(true)
	say(t, c, "y")
	p.Cut()
	wantReset(t, c)
}

func TestDelay(t *testing.T) {
	p := start(t, echo(t, "a"))
	c, _ := dial(t, p)
	p.Delay(30 * time.Millisecond)
	begin := time.Now()
	say(t, c, "x")
	hear(t, c, "x")
	if took := time.Since(begin); took < 60*time.Millisecond { // There and back.
		t.Fatalf("took %s", took)
	}
}

func TestTruncate(t *testing.T) {
	p := start(t, echo(t, "a"))
	c, _ := dial(t, p)
	p.Truncate(3)
	say(t, c, "abc")
	hear(t, c, "abc")
	say(t, c, "d")
	wantReset(t, c)
	fresh, _ := dial(t, p)
	say(t, fresh, "abcdef")
	hear(t, fresh, "abcdef")
}

func TestInspect(t *testing.T) {
	p := start(t, echo(t, "a"))
	old, _ := dial(t, p)
	p.Inspect(proxy.CutAt([]byte("poison")))
	say(t, old, "poison") // An existing connection has no filter.
	hear(t, old, "poison")
	c, _ := dial(t, p)
	for _, harmless := range []string{"poi", "oni", "oison", "pois"} {
		say(t, c, harmless)
		hear(t, c, harmless)
	}
	say(t, c, "onx")
	wantReset(t, c)
	p.Inspect(func() proxy.Filter { return func(down bool, _ []byte) bool { return !down } })
	c, err := net.DialTCP("tcp", nil, addr(t, p)) // The reset may come before the dial returns.
	if err == nil {
		defer c.Close()
		deadline(t, c, 10*time.Second)
		wantReset(t, c)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	p.Inspect(nil)
	dial(t, p)
}

func addr(t *testing.T, p *proxy.Proxy) *net.TCPAddr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBackends(t *testing.T) {
	p := start(t, echo(t, "a"), echo(t, "b"))
	first, name := dial(t, p)
	if name != "a" {
		t.Fatalf("backend %s, want a", name)
	}
	p.Prefer(1)
	_, name = dial(t, p)
	if name != "b" {
		t.Fatalf("backend %s, want b", name)
	}
	say(t, first, "x") // An existing connection keeps its backend.
	hear(t, first, "x")
	p.Drop(0)
	wantReset(t, first)
	p.Prefer(0)
	_, name = dial(t, p)
	if name != "b" {
		t.Fatalf("backend %s, want b, for a is dropped", name)
	}
	p.Restore(0)
	_, name = dial(t, p)
	if name != "a" {
		t.Fatalf("backend %s, want a", name)
	}
	if got, want := fmt.Sprint(p.Accepted(), p.Open()), "4 3"; got != want {
		t.Fatalf("accepted and open: %s, want %s", got, want)
	}
}

// TestBackendDown checks that a connection uses the next backend if the first is down.
func TestBackendDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	p := start(t, gone, echo(t, "b"))
	if _, name := dial(t, p); name != "b" {
		t.Fatalf("backend %s, want b", name)
	}
}
