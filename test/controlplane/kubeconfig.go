package controlplane

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Config returns the configuration for clients of API server 0 as the user. It panics unless the
// user is one of the fixed users or of Options.Users. The client side rate limit is off, because a
// test that waits for its own client measures nothing.
func (c *Cluster) Config(user string) *rest.Config { return c.ConfigFor(0, user) }

// ConfigFor is Config for API server i.
func (c *Cluster) ConfigFor(i int, user string) *rest.Config {
	return &rest.Config{
		Host:            c.APIServerURL(i),
		BearerToken:     c.token(user),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.caPEM},
		QPS:             -1,
	}
}

// WriteKubeconfig writes a self-contained file with one context for each API server ("server-0" and
// so on; the first is current). The user is as for Config.
func (c *Cluster) WriteKubeconfig(path, user string) error {
	cfg := api.NewConfig()
	cfg.AuthInfos[user] = &api.AuthInfo{Token: c.token(user)}
	for i := range c.apiServers {
		name := fmt.Sprintf("server-%d", i)
		cfg.Clusters[name] = &api.Cluster{Server: c.APIServerURL(i), CertificateAuthorityData: c.pki.caPEM}
		cfg.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user}
	}
	cfg.CurrentContext = "server-0"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

// WriteKubectl writes a script that runs kubectl of the control plane's version. Its directory must
// be in PATH for people, and for tests that run the same commands.
func (c *Cluster) WriteKubectl(path string) error {
	if err := c.bin.missing(kubectlBinary); err != nil {
		return err
	}
	quoted := c.bin.argv(kubectlBinary, nil)
	for i, arg := range quoted {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	script := "#!/bin/sh\nexec " + strings.Join(quoted, " ") + " \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return fmt.Errorf("kubectl %s: %w", path, err)
	}
	return nil
}
