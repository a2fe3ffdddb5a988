package connlimit_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/connlimit"
)

const most = 8

// serve starts a server that answers ok, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	s.Listener = connlimit.Listen(s.Listener, most)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a request on a connection, and reads the whole answer.
func ask(t *testing.T, c net.Conn) error {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// Any number of idle connections does not keep a client out.
func TestIdleConnectionsShutNobodyOut(t *testing.T) {
	t.Parallel()
	addr := serve(t)
	for range 20 * most {
		dial(t, addr)
		if err := ask(t, dial(t, addr)); err != nil {
			t.Fatal(err)
		}
	}
}

// At the bound, one connection is closed for a new one, and it is none that was used a moment ago.
func TestOneIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	addr := serve(t)
	var all []net.Conn
	for range most {
		c := dial(t, addr)
		if err := ask(t, c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all[:most/2] {
		if err := ask(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(t, dial(t, addr)); err != nil {
		t.Fatal(err)
	}
	var closed []int
	for k, c := range all {
		if ask(t, c) != nil {
			closed = append(closed, k)
		}
	}
	if len(closed) != 1 || closed[0] == 0 {
		t.Errorf("connections %v were closed, want one that was used before the first half", closed)
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost":                   true,
		"localhost:8080":              true,
		"127.0.0.1:8080":              true,
		"127.9.9.9":                   true,
		"[::1]:8080":                  true,
		"[::1]":                       true,
		"::1":                         true,
		"":                            false,
		"evil.example":                false,
		"localhost.evil.example:8080": false,
		"10.0.0.1:8080":               false,
		"127.0.0.1.evil.example":      false,
		"0.0.0.0":                     false,
	} {
		if got := connlimit.IsLoopback(host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
}
