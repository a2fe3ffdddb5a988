package world

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/proxy"
)

// RunProxy runs a proxy until the test ends.
func RunProxy(t testing.TB, backends ...string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Listen(backends...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return p
}

// HostPort returns the address in a URL that has only a scheme and an address.
func HostPort(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// KubeconfigVia writes a kubeconfig for an agent that reaches the API servers through a proxy.
func KubeconfigVia(t testing.TB, p *Plane, via *proxy.Proxy) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(path, controlplane.Admin); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://" + via.Addr()
	}
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}
