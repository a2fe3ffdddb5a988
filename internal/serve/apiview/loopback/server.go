// Package loopback serves a view of the past to clients on this machine: on 127.0.0.1, with TLS, a
// random token, and a kubeconfig that only its owner can read.
package loopback

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubecdc/kubecdc/internal/connlimit"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// maxConnections bounds what other users of this machine can hold open. A watch gets a bookmark
// each minute.
const maxConnections = 512

// Server serves a view until Close.
type Server struct {
	URL        string
	Kubeconfig string // the path of the file, which is removed at the end

	listener  net.Listener
	server    *http.Server
	temporary string // directory of a temporary kubeconfig, "" without one
}

// Listen opens a port (0: a free one) and writes a kubeconfig for clients ("": to a temporary
// directory). It sets the token of handler.
func Listen(ctx context.Context, handler *apiview.Server, port int, kubeconfig string) (_ *Server, err error) {
	handler.Token = rand.Text()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("--port %d: %w", port, err)
	}
	s := &Server{listener: listener, URL: "https://" + listener.Addr().String(), Kubeconfig: kubeconfig}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	certificate, authority, err := newCertificate(time.Now())
	if err != nil {
		return nil, err
	}
	s.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		// a deadline of a stream does not end it if nothing of the connection is read
		HTTP2: &http.HTTP2Config{WriteByteTimeout: 30 * time.Second},
		// discards failed handshakes of clients without the certificate
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	return s, s.writeKubeconfig(handler.Token, authority)
}

// writeKubeconfig writes the kubeconfig with permissions for its owner only.
func (s *Server) writeKubeconfig(token string, authority []byte) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["kubecdc"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: authority}
	c.AuthInfos["kubecdc"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["kubecdc"] = &clientcmdapi.Context{Cluster: "kubecdc", AuthInfo: "kubecdc"}
	c.CurrentContext = "kubecdc"
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	if s.Kubeconfig == "" {
		s.temporary, err = os.MkdirTemp("", "kubecdc-")
		if err != nil {
			return err
		}
		s.Kubeconfig = filepath.Join(s.temporary, "kubeconfig")
	}
	file, err := os.OpenFile(s.Kubeconfig, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		s.Kubeconfig = "" // do not remove a file of another writer
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	_, err = file.Write(raw)
	return errors.Join(err, file.Close())
}

// Close closes the port and removes the kubeconfig.
func (s *Server) Close() {
	_ = s.listener.Close()
	if s.Kubeconfig != "" {
		_ = os.Remove(s.Kubeconfig) // its token is no longer valid
	}
	if s.temporary != "" {
		_ = os.Remove(s.temporary)
	}
}

// Run serves while f runs.
func (s *Server) Run(ctx context.Context, f func(context.Context) error) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s.server.BaseContext = func(net.Listener) context.Context { return requests }
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.server.ServeTLS(connlimit.Listen(s.listener, maxConnections), "", ""); !errors.Is(err,
			http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer func() {
			_ = s.server.Close() // ends the open watches
			end()                // and those over WebSocket, which it does not know
		}()
		return f(ctx)
	})
	return g.Wait()
}
