package publish_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestTLSDialer(t *testing.T) {
	first, second := bustest.NewAuthority(t), bustest.NewAuthority(t)
	files := bustest.NewTLSFiles(t)
	files.Write(files.CAFile, first.PEM)
	files.Issue(first, "agent")
	s := bustest.ServeTLS(t, first, "127.0.0.1")
	dial := files.Dialer(new(net.Dialer).DialContext)
	try := func() error {
		c, err := dial(t.Context(), "tcp", s.Listener.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	s.Set(t, second, "127.0.0.1")
	if err := try(); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v", err)
	}
	files.Write(files.CAFile, second.PEM)
	files.Issue(second, "agent")
	if err := try(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files.KeyFile); err != nil {
		t.Fatal(err)
	}
	if err := try(); err == nil || !strings.Contains(err.Error(), files.KeyFile) {
		t.Errorf("got %v", err)
	}
	if c, err := (*publish.TLS)(nil).Config(); c != nil || err != nil {
		t.Errorf("got %v, %v for no TLS", c, err)
	}
}
