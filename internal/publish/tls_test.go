package publish_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// The replacement of a certificate and its key is not atomic, so a mismatch is read again. It is an
// error after five reads.
func TestCertificateIsReadAgainWithItsKey(t *testing.T) {
	authority := bustest.NewAuthority(t)
	files := bustest.NewTLSFiles(t)
	files.Write(files.CAFile, authority.PEM)
	files.Issue(authority, "agent")
	_, otherKey := authority.Issue(t, "agent")
	key, err := os.ReadFile(files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	files.Write(files.KeyFile, otherKey)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := files.Config()
		if !errors.As(err, new(publish.PairError)) || !strings.Contains(err.Error(), files.KeyFile) {
			t.Errorf("got %v, want an error of the pair", err)
		}
		if took := time.Since(began); took != 80*time.Millisecond {
			t.Errorf("five reads took %s", took)
		}
		time.AfterFunc(70*time.Millisecond, func() { files.Write(files.KeyFile, key) })
		if _, err := files.Config(); err != nil {
			t.Errorf("the key was replaced 70 ms after the certificate: %v", err)
		}
	})
}
