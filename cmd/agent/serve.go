package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubecdc/kubecdc/internal/apiview"
	"github.com/kubecdc/kubecdc/internal/terminal"
	"github.com/kubecdc/kubecdc/internal/timeline"
)

// serveFlags are the flags of the commands that serve the past as a Kubernetes API.
type serveFlags struct {
	askFlags
	at, kubeconfig  string
	from, to, speed string
	port            int
	maxMoments      int
}

const viewHelp = `The API is read-only: discovery, get, list, watch, tables. A watch opens and stays still. It listens on 127.0.0.1 only,
with TLS, and answers requests that have the random token of its kubeconfig. Resources are served in the version that
was captured. Values that the agent strips or redacts are missing. kubectl shows a warning for a list that is not
certain.`

func newServeCommand(stdout, stderr io.Writer) *cobra.Command {
	f := serveFlags{at: "now", to: "now", speed: "1", maxMoments: 4}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the past as a read-only Kubernetes API",
		Long: `Serve the objects of a moment as a read-only Kubernetes API, and write a kubeconfig for kubectl and other clients.

` + momentHelp + `

--from and --to replay the time between two moments. Lists show the first moment. The replay begins when a client
watches, and no other one has begun to list or watch for 2 s. Then watches show every version that the record has, in
the order of resourceVersions, --speed times as fast as they were observed. All of them are in memory, compressed.

Other moments are served below /at/: the server of a kubeconfig may be https://127.0.0.1:PORT/at/2026-11-20T14:05:00Z or
https://127.0.0.1:PORT/at/rv:48211. A moment is read at the first request for it. The last --max-moments are kept in
memory.

` + viewHelp + `

` + certaintyHelp,
		Example: `  kubecdc serve --at 14:05
  kubecdc serve --at 'yesterday 14:05' --kubeconfig incident.kubeconfig --port 8443
  kubecdc serve --from 14:00 --to 14:10 --speed 60
  kubecdc serve --bus file:events.jsonl --at rv:48211`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{"to", "speed"} {
				if f.from == "" && cmd.Flags().Changed(flag) {
					return usageError{fmt.Errorf("--%s is of a replay: name its first moment with --from", flag)}
				}
			}
			return servePast(cmd.Context(), &f, stdout, stderr)
		},
	}
	f.addView(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.at, "at", f.at, "the `moment`")
	fl.StringVar(&f.from, "from", "", "replay from this `moment`")
	fl.StringVar(&f.to, "to", f.to, "replay up to this `moment`")
	fl.StringVar(&f.speed, "speed", f.speed, "replay this `number` of times as fast as changes were observed, or max")
	completeWords(cmd, "at", "now", "10m", "1h", "24h")
	completeWords(cmd, "from", "10m", "1h", "24h")
	completeWords(cmd, "to", "now", "10m", "1h")
	completeWords(cmd, "speed", "1", "60", "max")
	cmd.MarkFlagsMutuallyExclusive("at", "from")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "write the kubeconfig to this new `file` (default: one in a temporary directory); it is removed at the end")
	fl.IntVar(&f.port, "port", 0, "listen on this `port` of 127.0.0.1 (default: a free one)")
	fl.IntVar(&f.maxMoments, "max-moments", f.maxMoments, "keep this `number` of moments of /at/ in memory")
	return cmd
}

func (f *serveFlags) addView(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.cluster, "cluster", "", "`name` of the cluster, if the record has several")
	fl.BoolVar(&f.exact, "exact", false, "exit with code 3 unless the answer is exact")
	f.bus.addBus(cmd)
}

// servePast serves a moment until ctx ends.
func servePast(ctx context.Context, f *serveFlags, stdout, stderr io.Writer) error {
	if f.maxMoments < 1 || f.maxMoments > 1000 {
		return usageError{fmt.Errorf("--max-moments: must be between 1 and 1000, got %d", f.maxMoments)}
	}
	at, to, speed, err := f.span()
	if err != nil {
		return err
	}
	if !signal.Ignored(syscall.SIGHUP) { // the terminal is closed: without this, the kubeconfig would remain
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	q, err := f.ask(ctx, nil, stdout, stderr)
	if err != nil {
		return err
	}
	view, err := q.View(ctx, at, to)
	if err != nil {
		return err
	}
	s, err := f.listen(ctx, &apiview.Server{Root: view, MaxMoments: f.maxMoments, Open: q.ViewForClient})
	if err != nil {
		return err
	}
	defer s.remove()
	fmt.Fprintf(stderr, "serving at %s, read-only; Ctrl-C ends it. In another terminal:\n", s.url)
	fmt.Fprintf(stdout, "export KUBECONFIG=%s\n", s.kubeconfig)
	return s.run(ctx, func(ctx context.Context) error {
		if to != nil {
			fmt.Fprintln(q.Stderr, "The replay begins 2 s after the first watch.")
			shown, err := view.Play(ctx, speed, func() { fmt.Fprintf(q.Stderr, "The replay from %s has begun.\n", at) })
			if err == nil {
				fmt.Fprintf(q.Stderr, "The replay has reached %s, after %s changes. Watches stay open.\n", to, terminal.Count(shown))
			}
		}
		<-ctx.Done()
		return nil
	})
}

// span returns the moment to serve, the end of the replay that follows (nil without a replay), and its speed (0 for no pauses).
func (f *serveFlags) span() (at timeline.Moment, to *timeline.Moment, speed float64, err error) {
	if f.from == "" {
		at, err = parseMoment("at", f.at)
		return at, nil, 0, err
	}
	at, end, err := readSpan(f.from, f.to)
	if err != nil {
		return at, nil, 0, err
	}
	speed, err = readSpeed(f.speed)
	return at, &end, speed, err
}

// viewServer is an API view with a listener.
type viewServer struct {
	url        string
	kubeconfig string // the path of the file
	listener   net.Listener
	server     *http.Server
	temporary  string // directory of a temporary kubeconfig, "" without one
}

// listen opens the port of a view and writes its kubeconfig.
func (f *serveFlags) listen(ctx context.Context, handler *apiview.Server) (_ *viewServer, err error) {
	handler.Token = rand.Text()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", f.port))
	if err != nil {
		return nil, fmt.Errorf("--port %d: %w", f.port, err)
	}
	s := &viewServer{listener: listener, url: "https://" + listener.Addr().String(), kubeconfig: f.kubeconfig}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	certificate, authority, err := loopbackCertificate()
	if err != nil {
		return nil, err
	}
	s.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // discards failed handshakes of clients without the certificate
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	return s, s.writeKubeconfig(handler.Token, authority)
}

// loopbackCertificate returns a self-signed certificate for 127.0.0.1, also as PEM.
func loopbackCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kubecdc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), nil
}

// writeKubeconfig writes the kubeconfig with permissions for its owner only.
func (s *viewServer) writeKubeconfig(token string, authority []byte) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["kubecdc"] = &clientcmdapi.Cluster{Server: s.url, CertificateAuthorityData: authority}
	c.AuthInfos["kubecdc"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["kubecdc"] = &clientcmdapi.Context{Cluster: "kubecdc", AuthInfo: "kubecdc"}
	c.CurrentContext = "kubecdc"
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	if s.kubeconfig == "" {
		if s.temporary, err = os.MkdirTemp("", "kubecdc-"); err != nil {
			return err
		}
		s.kubeconfig = filepath.Join(s.temporary, "kubeconfig")
	}
	file, err := os.OpenFile(s.kubeconfig, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		s.kubeconfig = "" // do not remove a file of another writer
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	_, err = file.Write(raw)
	return errors.Join(err, file.Close())
}

// remove closes the port and removes the kubeconfig.
func (s *viewServer) remove() {
	_ = s.listener.Close()
	if s.kubeconfig != "" {
		_ = os.Remove(s.kubeconfig) // its token is no longer valid
	}
	if s.temporary != "" {
		_ = os.Remove(s.temporary)
	}
}

// run serves while f runs.
func (s *viewServer) run(ctx context.Context, f func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer func() { _ = s.server.Close() }() // ends the open watches
		return f(ctx)
	})
	return g.Wait()
}
