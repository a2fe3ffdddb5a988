package apiview

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/websocket"
)

// stream carries the events of a watch to its client: as lines of an answer, or as messages of a
// WebSocket. Each Write has one event.
type stream struct {
	io.Writer

	flush func()
	ended <-chan struct{} // the client has gone, or the server ends
	close func()
}

// openStream begins the answer of a watch.
func openStream(w http.ResponseWriter, r *http.Request) (*stream, error) {
	if isSocket(r) {
		return openSocket(w, r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	return &stream{
		Writer: w,
		ended:  r.Context().Done(),
		close:  func() {},
		flush:  func() { _ = flush() }, // the client has gone
	}, nil
}

// openSocket answers the handshake of a WebSocket as kube-apiserver does, with the same package:
// 403 without an Origin, 400 for several subprotocols. A refused client gets a stream that has
// ended.
//
// net/http does not know a connection that has been upgraded. So the stream ends by itself: it
// reads to see the client go, has a deadline for each event, and ends with the context of the
// server.
func openSocket(w http.ResponseWriter, r *http.Request) (*stream, error) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, badRequest("this connection cannot carry a WebSocket: %v", err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(stuckAfter)) // of the handshake
	opened, gone := make(chan *websocket.Conn, 1), make(chan struct{})
	go func() {
		defer close(gone)
		websocket.Handler(func(ws *websocket.Conn) {
			_ = conn.SetWriteDeadline(time.Time{})
			opened <- ws
			_, _ = io.Copy(io.Discard, ws) // the client should not send anything
		}).ServeHTTP(hijacked{w, conn, buffer}, r)
	}()
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	s := &stream{Writer: io.Discard, ended: gone, flush: func() {}}
	s.close = func() {
		stop()
		_ = conn.Close()
		<-gone
	}
	select {
	case ws := <-opened:
		s.Writer = socket{ws}
		s.close = func() {
			_ = ws.SetWriteDeadline(time.Now().Add(time.Second))
			_ = ws.Close() // says that it ends
			stop()
			<-gone
		}
	case <-gone:
	}
	return s, nil
}

// socket writes each event as a text message.
type socket struct{ *websocket.Conn }

func (s socket) Write(event []byte) (int, error) {
	_ = s.SetWriteDeadline(time.Now().Add(stuckAfter))     // it fails only if the connection is closed
	defer func() { _ = s.SetWriteDeadline(time.Time{}) }() // the answer to a ping may come much later
	if err := websocket.Message.Send(s.Conn, string(event)); err != nil {
		return 0, err
	}
	return len(event), nil
}

// hijacked is an answer whose connection has been taken over.
type hijacked struct {
	http.ResponseWriter

	conn   net.Conn
	buffer *bufio.ReadWriter
}

// Hijack implements http.Hijacker.
func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.buffer, nil }

// bearerProtocol begins the subprotocol that has a token. The WebSockets of browsers set no
// headers.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// isSocket reports whether a request asks for a WebSocket.
func isSocket(r *http.Request) bool {
	return httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// tokenOf returns the token of a request: of its header, or of a subprotocol of a WebSocket, which
// it removes. As with kube-apiserver, there must be another subprotocol, which the answer has. "":
// there is none.
func tokenOf(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	if !isSocket(r) {
		return ""
	}
	const header = "Sec-Websocket-Protocol"
	var tokens, others []string
	for protocol := range strings.SplitSeq(strings.Join(r.Header[header], ","), ",") {
		protocol = strings.TrimSpace(protocol)
		if encoded, ok := strings.CutPrefix(protocol, bearerProtocol); ok {
			tokens = append(tokens, encoded)
		} else if protocol != "" {
			others = append(others, protocol)
		}
	}
	if len(tokens) != 1 || len(others) == 0 {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(tokens[0])
	if err != nil {
		return ""
	}
	r.Header.Set(header, strings.Join(others, ","))
	return string(token)
}
