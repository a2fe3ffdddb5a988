package http

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	tlsTimeout      = 10 * time.Second
	idleTimeout     = 30 * time.Second // shorter than what most receivers grant: who closes first does not race
	tcpKeepAlive    = 15 * time.Second
	httpPing        = 20 * time.Second
	maxAnswerHeader = 64 << 10
	expectTimeout   = time.Second // for the answer to a request's header, before its body is sent all the same
)

// links are the connections to a receiver: those that requests share, and those of one request each. They are begun anew
// when the file of certificates to trust has other content; the client's certificate is read in each handshake.
type links struct {
	tls  *publish.TLS
	idle int // connections to keep
	// buffer is how many bytes a connection gathers before it writes. The body comes through it (a payload is no bytes.Reader,
	// which net/http would write as a whole), and net/http's 4 KiB are two writes for most events, 30 for a batch.
	buffer int
	fence  *publish.Fencing // nil: connections are not guarded

	plaintext bool // secrets go out unencrypted, and must not leave this machine

	mu     sync.Mutex
	stamp  stamp  // of the caFile when it was read
	roots  []byte // its content, which they trust
	shared *http.Transport
	own    *http.Transport
}

func (l *links) pick(own bool) (*http.Transport, error) {
	var now stamp
	if l.tls != nil && l.tls.CAFile != "" {
		var err error
		if now, err = stampOf(l.tls.CAFile); err != nil {
			return nil, fmt.Errorf("tls: read caFile: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(now); err != nil {
		return nil, err
	}
	if own {
		return l.own, nil
	}
	return l.shared, nil
}

// refresh reads the caFile again if it has changed; now is of a moment before. While it cannot be used, nothing is sent, on
// connections that stand either.
func (l *links) refresh(now stamp) error {
	roots := l.roots
	if now.info != nil && !l.stamp.same(now) {
		var err error
		if roots, err = os.ReadFile(l.tls.CAFile); err != nil {
			return fmt.Errorf("tls: read caFile: %w", err)
		}
	}
	if l.shared != nil && bytes.Equal(roots, l.roots) {
		l.stamp = now
		return nil
	}
	config, err := l.tls.Config()
	if err != nil {
		return err
	}
	if l.shared != nil {
		// Those that are in use end when they have been idle for a while.
		l.shared.CloseIdleConnections()
	}
	dialer := &net.Dialer{Timeout: publish.DialTimeout, KeepAlive: tcpKeepAlive}
	// Not a DialTLSContext, which is not asked where a proxy stands between.
	l.shared = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            l.dial(dialer),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    tlsTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           l.idle,
		MaxIdleConnsPerHost:    l.idle,
		IdleConnTimeout:        idleTimeout,
		WriteBufferSize:        l.buffer,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // what errors quote should be readable, and acknowledgements are empty
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: httpPing, PingTimeout: publish.DialTimeout},
	}
	l.own = l.shared.Clone()
	l.own.DisableKeepAlives = true
	l.own.ExpectContinueTimeout = expectTimeout
	l.stamp, l.roots = now, roots
	return nil
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared.CloseIdleConnections()
	l.own.CloseIdleConnections()
}

// dial is how connections are made. All that is written to them belongs to an event, but for greetings.
func (l *links) dial(d *net.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := d.DialContext
	if l.plaintext {
		dial = publish.LoopbackOnly(dial)
	}
	if l.fence == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return l.fence.Guard(conn, true), nil
	}
}
