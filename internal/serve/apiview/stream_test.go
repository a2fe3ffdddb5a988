package apiview_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/net/websocket"

	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// socketServer serves a view. end ends the server as serve does.
func socketServer(t *testing.T, s *apiview.Server) (server *httptest.Server, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	server = httptest.NewUnstartedServer(s)
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	end = func() {
		cancel()
		server.Close()
	}
	t.Cleanup(end)
	return server, end
}

// dialSocket opens a watch over WebSocket.
func dialSocket(t *testing.T, server *httptest.Server, path string, protocols ...string) (*websocket.Conn, error) {
	t.Helper()
	c, err := websocket.NewConfig("ws"+strings.TrimPrefix(server.URL, "http")+path, "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	c.Header.Set("Authorization", "Bearer "+token)
	c.Protocol = protocols
	ws, err := c.DialContext(t.Context())
	if err == nil {
		t.Cleanup(func() { _ = ws.Close() })
	}
	return ws, err
}

// messages reads text messages until the server closes the socket.
func messages(t *testing.T, ws *websocket.Conn) []string {
	t.Helper()
	_ = ws.SetReadDeadline(time.Now().Add(20 * time.Second))
	var out []string
	for {
		var text string
		err := websocket.Message.Receive(ws, &text)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("after %d messages: %v", len(out), err)
		}
		out = append(out, text)
	}
}

// A watch over WebSocket has the events of one over HTTP, each as a message.
func TestWatchOverWebSocket(t *testing.T) {
	t.Parallel()
	server, _ := socketServer(t, &apiview.Server{Root: rollout(t), Token: token})
	for _, path := range []string{
		"/api/v1/configmaps?watch=1",
		"/api/v1/configmaps?watch=1&labelSelector=app%3Dweb",
		"/api/v1/watch/namespaces/shop/configmaps/a?",
		"/api/v1/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"/api/v1/configmaps?watch=1&resourceVersion=1", // ERROR
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			path += "&timeoutSeconds=1"
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			ws, err := dialSocket(t, server, path, "base64.binary.k8s.io")
			if err != nil {
				t.Fatal(err)
			}
			got := messages(t, ws)
			if diff := cmp.Diff(string(body), strings.Join(got, "")); diff != "" || len(got) == 0 {
				t.Errorf("-HTTP +WebSocket\n%s", diff)
			}
			for _, text := range got {
				if !json.Valid([]byte(text)) || strings.Count(text, "\n") != 1 {
					t.Errorf("a message has not one event: %s", text)
				}
			}
		})
	}
}

// A handshake is refused as kube-apiserver refuses it. A list is no watch: it ignores the upgrade.
func TestWebSocketHandshake(t *testing.T) {
	t.Parallel()
	server, _ := socketServer(t, &apiview.Server{Root: cluster().view(), Token: token})
	const key = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	const origin = "Origin: http://localhost\r\n"
	for name, c := range map[string]struct {
		path, header string
		code         int
		protocol     string
	}{
		"accepted":      {"pods?watch=1", key + origin, 101, ""},
		"a protocol":    {"pods?watch=1", key + origin + "Sec-WebSocket-Protocol: a.k8s.io\r\n", 101, "a.k8s.io"},
		"two protocols": {"pods?watch=1", key + origin + "Sec-WebSocket-Protocol: a.k8s.io, b.k8s.io\r\n", 400, ""},
		"no origin":     {"pods?watch=1", key, 403, ""},
		"no key":        {"pods?watch=1", strings.ReplaceAll(key, "Sec-WebSocket-Key", "X-Key") + origin, 400, ""},
		"a list":        {"pods?", key + origin, 200, ""},
		"no resource":   {"nothing?watch=1", key + origin, 404, ""},
		"a bad version": {"pods?watch=1&resourceVersion=x", key + origin, 400, ""},
		"no upgrade":    {"pods?watch=1&timeoutSeconds=1", "Upgrade: websocket\r\n", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			request := "GET /api/v1/" + c.path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token +
				"\r\n" + c.header + "\r\n"
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Body.Close() }()
			if got := r.Header.Get("Sec-WebSocket-Protocol"); r.StatusCode != c.code || got != c.protocol {
				t.Errorf("%s, protocol %q", r.Status, got)
			}
		})
	}
}

// A client may ping long after the last event.
func TestSocketAnswersLatePings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := piped(t, &apiview.Server{Root: cluster().view(), Token: token})
		conn := connect("GET", "/api/v1/pods?watch=1&resourceVersion=0",
			"Upgrade: websocket\r\nConnection: Upgrade\r\n"+
				"Origin: http://past\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
		read := make(chan byte, 1<<20)
		go func() {
			defer close(read)
			for b := make([]byte, 1<<10); ; {
				n, err := conn.Read(b)
				for _, c := range b[:n] {
					read <- c
				}
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if len(read) == 0 {
			t.Fatal("the server sends nothing")
		}
		for len(read) > 0 {
			<-read
		}
		<-time.After(2 * time.Minute)
		if _, err := conn.Write([]byte{0x89, 0x80, 0, 0, 0, 0}); err != nil { // a ping without a payload, masked
			t.Fatal(err)
		}
		synctest.Wait()
		if first, ok := <-read; !ok || first != 0x8a {
			t.Errorf("no pong: %x, %t", first, ok)
		}
		_ = conn.Close()
	})
}

// A watch over WebSocket ends with the server, and when the client goes. No goroutine is left.
func TestSocketEnds(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ended := make(chan struct{}, 2)
	view := &apiview.Server{Root: cluster().view(), Token: token}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		view.ServeHTTP(w, r)
		ended <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewUnstartedServer(handler)
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	defer server.Close()
	awaitEnd := func(what string) {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the watch goes on", what)
		}
	}
	open := func() *websocket.Conn {
		t.Helper()
		ws, err := dialSocket(t, server, "/api/v1/pods?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		var text string
		if err := websocket.Message.Receive(ws, &text); err != nil || !strings.Contains(text, `"ADDED"`) {
			t.Fatalf("%s, %v", text, err)
		}
		return ws
	}
	ws := open()
	if err := websocket.Message.Send(ws, "a client should send nothing"); err != nil {
		t.Fatal(err)
	}
	if err := ws.Close(); err != nil {
		t.Fatal(err)
	}
	awaitEnd("the client has gone")
	open()
	cancel()
	awaitEnd("the server has ended")
	server.Close()
	goleak.VerifyNone(t, before)
}

// Clients in browsers, and Headlamp, cannot set a header: a subprotocol has the token, as
// kube-apiserver reads it. The answer does not show it.
func TestWebSocketWithTheTokenInASubprotocol(t *testing.T) {
	t.Parallel()
	server, _ := socketServer(t, &apiview.Server{Root: rollout(t), Token: token})
	const bearer, other = "base64url.bearer.authorization.k8s.io.", "base64.binary.k8s.io"
	right := bearer + base64.RawURLEncoding.EncodeToString([]byte(token))
	for name, c := range map[string]struct {
		path, upgrade, protocols string
		code                     int
	}{
		"after another protocol":  {"configmaps?watch=1", "websocket", other + ", " + right, 101},
		"before another protocol": {"configmaps?watch=1", "websocket", right + "," + other, 101},
		"alone":                   {"configmaps?watch=1", "websocket", right, 401},
		"twice":                   {"configmaps?watch=1", "websocket", right + ", " + right + ", " + other, 401},
		"wrong":                   {"configmaps?watch=1", "websocket", bearer + "b3RoZXI, " + other, 401},
		"not base64":              {"configmaps?watch=1", "websocket", bearer + "?, " + other, 401},
		"empty":                   {"configmaps?watch=1", "websocket", bearer + ", " + other, 401},
		"no WebSocket":            {"configmaps", "", other + ", " + right, 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Sec-WebSocket-Protocol", c.protocols)
			if c.upgrade != "" {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", c.upgrade)
				r.Header.Set("Sec-WebSocket-Version", "13")
				r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
				r.Header.Set("Origin", server.URL)
			}
			answer, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			protocol := answer.Header.Get("Sec-WebSocket-Protocol")
			if answer.StatusCode != c.code || c.code == 101 && protocol != other {
				t.Errorf("%s, protocol %q", answer.Status, protocol)
			}
		})
	}
}
