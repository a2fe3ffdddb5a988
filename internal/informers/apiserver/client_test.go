package apiserver_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// readConn records the size of the smallest buffer that it is read into.
type readConn struct {
	net.Conn
	smallest *atomic.Int64
}

func (c *readConn) Read(p []byte) (int, error) {
	for n := int64(len(p)); ; {
		if s := c.smallest.Load(); s != 0 && s <= n || c.smallest.CompareAndSwap(s, n) {
			return c.Conn.Read(p)
		}
	}
}

// A busy watch costs system calls per buffer, not per frame.
func TestWatchesAreReadThroughALargeBuffer(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){
		"HTTP": func(s *httptest.Server) { s.Start() },
		"TLS":  func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("{}\n"))
			}))
			start(s)
			defer s.Close()
			var smallest atomic.Int64
			c, err := apiserver.New(&rest.Config{
				Host:            s.URL,
				TLSClientConfig: rest.TLSClientConfig{Insecure: name == "TLS"},
				Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					var d net.Dialer
					conn, err := d.DialContext(ctx, network, address)
					return &readConn{conn, &smallest}, err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, alone := range []bool{false, true} {
				smallest.Store(0)
				s, err := c.Stream(t.Context(), &object.Resource{Version: "v1", Name: "pods"}, "", metav1.ListOptions{},
					false, alone)
				if err != nil {
					t.Fatal(err)
				}
				s.Close()
				if n := smallest.Load(); n < 16<<10 {
					t.Errorf("alone %t: a read of the connection has room for %d bytes", alone, n)
				}
			}
		})
	}
}
