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
	idleTimeout     = 30 * time.Second // shorter than the timeout of most receivers: closing first avoids a race
	tcpKeepAlive    = 15 * time.Second
	httpPing        = 20 * time.Second
	maxAnswerHeader = 64 << 10
	expectTimeout   = publish.RequestTimeout // maximum wait for 100-continue; then the body is sent anyway
)

// links holds the connections to a receiver: shared ones, and separate ones for one request each. It replaces them after the content of the
// caFile changes. Each handshake reads the client's certificate.
type links struct {
	tls  *publish.TLS
	idle int // idle connections to keep
	// buffer is the size of a connection's write buffer. It also buffers the body, because a payload is not a bytes.Reader, which net/http
	// would write at once. The 4 KiB of net/http would need two writes for most events, and 30 for a batch.
	buffer int
	fence  *publish.Fencing // nil: connections have no guard

	plaintext bool // secrets are sent unencrypted, so only loopback connections are allowed

	mu     sync.Mutex
	stamp  stamp  // of the caFile at the last reading
	roots  []byte // its content: the trusted authorities
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

// refresh reads the caFile again after a change; now is its stamp from a moment before. While the file is unusable, nothing is sent, not
// even on open connections.
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
		// Connections in use close after they have been idle for a while.
		l.shared.CloseIdleConnections()
	}
	dialer := &net.Dialer{Timeout: publish.DialTimeout, KeepAlive: tcpKeepAlive}
	// DialTLSContext would not be called for connections through a proxy.
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
		DisableCompression:     true, // quoted errors must be readable, and acknowledgements are empty
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

// dial returns the function that opens connections. Except for handshakes, every write to them belongs to an event.
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
