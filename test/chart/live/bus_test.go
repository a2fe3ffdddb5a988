//go:build linux

package live_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secretMark must not be in any place that others can read.
const secretMark = "hunter2-kubecdc-chart"

// TestRunSecrets stores the agent's credentials in Secrets: a password, and the authority of the
// bus.
func TestRunSecrets(t *testing.T) {
	certificate, authority := certificateFor(t, "nats.messaging")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	n := w.startNodes(t, site{
		bus: func(o *server.Options) {
			o.TLS = true
			o.Username = "kubecdc"
			o.Password = secretMark
			o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		},
		login: []nats.Option{
			nats.UserInfo("kubecdc", secretMark), nats.Secure(&tls.Config{
				RootCAs:    trusted,
				ServerName: "nats.messaging",
			}),
		},
	})
	w.namespace(t, "kubecdc-secrets", "restricted")
	w.namespace(t, "shop-secrets", "restricted")
	for name, data := range map[string]map[string]string{
		"nats-auth": {"password": secretMark}, "nats-ca": {"authority.pem": string(authority), "other": "not mounted"},
	} {
		_, err := w.client.CoreV1().Secrets("kubecdc-secrets").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(`
bus:
  nats:
    url: tls://nats.messaging:4222
    auth: {user: kubecdc, passwordFile: /var/run/secrets/kubecdc/nats-auth/password}
    tls: {caFile: /etc/nats-ca/ca.crt}
secrets:
- name: nats-auth
- name: nats-ca
  mountPath: /etc/nats-ca
  items: {authority.pem: ca.crt}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", "kubecdc-secrets", "--values", values)
	pods := w.ready(t, "kubecdc-secrets", "agent", 2)
	n.leader(t, pods)
	writing, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	written, err := w.write(writing, "shop-secrets", "written")
	if err != nil {
		t.Fatal(err)
	}
	n.whole(t, written)
	for i := range pods {
		if strings.Contains(n.Log("kubecdc-secrets", pods[i].Name), secretMark) {
			t.Errorf("the log of %s has the password", pods[i].Name)
		}
	}
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", "kubecdc-secrets", "--wait", "--timeout", "120s")
	w.ready(t, "kubecdc-secrets", "agent", 0)
	n.scopesEnded(t)
}

// TestRunTrial installs the chart with its own NATS server.
func TestRunTrial(t *testing.T) {
	const namespace, natsHost = "kubecdc-trial", "10.96.0.30"
	// The Service of that server forwards the connections of Pods to its Pod.
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := w.startNodes(t, site{
		routes: map[string]string{net.JoinHostPort(natsHost, "4222"): l.Addr().String()},
		hosts:  map[string]string{"try-nats." + namespace: natsHost},
	})
	var g errgroup.Group
	g.Go(func() error {
		for {
			in, err := l.Accept()
			if err != nil {
				return nil // closed
			}
			g.Go(func() error {
				defer in.Close()
				out, err := n.Dial(t.Context(), namespace, "try-nats-0", 4222)
				if err != nil {
					return nil // not there yet
				}
				defer out.Close()
				var both errgroup.Group
				both.Go(func() error {
					_, err := io.Copy(out, in)
					_ = out.Close()
					return err
				})
				_, _ = io.Copy(in, out)
				_ = in.Close()
				_ = both.Wait()
				return nil
			})
		}
	})
	defer func() {
		_ = l.Close()
		_ = g.Wait()
	}()
	w.namespace(t, namespace, "restricted")
	w.namespace(t, "shop-trial", "restricted")
	w.mustHelm(t, "install", "try", w.chart, "--namespace", namespace, "--set", "nats.enabled=true")
	pods := w.ready(t, namespace, "agent", 2)
	n.leader(t, pods)
	writing, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	written, err := w.write(writing, "shop-trial", "written")
	if err != nil {
		t.Fatal(err)
	}
	n.wholeAt(t, "nats://"+l.Addr().String(), written)
	// Otherwise the server goes with the agents, and they wait for it until their grace period
	// ends.
	w.scale(t, namespace, "try-kubecdc", 0)
	w.ready(t, namespace, "agent", 0)
	w.mustHelm(t, "uninstall", "try", "--namespace", namespace, "--wait", "--timeout", "120s")
	w.ready(t, namespace, "agent", 0)
}

// nats returns the path of a NATS server's binary, which is built from its module on first use.
func (w *world) nats() (string, error) {
	w.natsOnce.Do(func() {
		w.natsPath = filepath.Join(w.dir, "nats-server")
		cmd := exec.Command("go", "build", "-o", w.natsPath, "github.com/nats-io/nats-server/v2")
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		var out []byte
		out, w.natsErr = cmd.CombinedOutput()
		if w.natsErr != nil {
			w.natsErr = fmt.Errorf("build a NATS server: %w\n%s", w.natsErr, out)
		}
	})
	return w.natsPath, w.natsErr
}

// certificateFor returns a certificate for the name, and the authority to trust for it.
func certificateFor(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: secret}, pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	})
}
