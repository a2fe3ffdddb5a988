package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// assetsVariable names the directory of the binaries that setup-envtest installs.
const assetsVariable = "KUBEBUILDER_ASSETS"

// The components, by the names of their binaries.
const (
	etcdBinary              = "etcd"
	apiServerBinary         = "kube-apiserver"
	controllerManagerBinary = "kube-controller-manager"
	kubectlBinary           = "kubectl"
)

// Binaries are the programs of a control plane.
type Binaries struct {
	multi string            // the binary of Build, which has all components
	paths map[string]string // otherwise, by name
}

// Installed returns the binaries in the directory KUBEBUILDER_ASSETS or, if the variable is not
// set, those on PATH. It returns nil if PATH lacks etcd or kube-apiserver, and an error if the
// directory lacks one of them.
func Installed() (*Binaries, error) {
	if dir := os.Getenv(assetsVariable); dir != "" {
		return assets(dir)
	}
	found := &Binaries{paths: map[string]string{}}
	for _, name := range []string{etcdBinary, apiServerBinary, controllerManagerBinary, kubectlBinary} {
		if path, err := exec.LookPath(name); err == nil {
			found.paths[name] = path
		}
	}
	if found.missing(etcdBinary, apiServerBinary) != nil {
		return nil, nil //nolint:nilnil // No binaries are no error: the caller builds them.
	}
	return found, nil
}

// assets returns the binaries of the directory KUBEBUILDER_ASSETS.
func assets(dir string) (*Binaries, error) {
	found := &Binaries{paths: map[string]string{}}
	var missing error
	for _, name := range []string{etcdBinary, apiServerBinary, controllerManagerBinary, kubectlBinary} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			found.paths[name] = path
		} else if name == etcdBinary || name == apiServerBinary {
			missing = errors.Join(missing, err)
		}
	}
	if missing != nil {
		return nil,
			fmt.Errorf("%s lacks a binary: unset it, and the control plane is built: %w", assetsVariable, missing)
	}
	return found, nil
}

// findBinaries prefers the caller's binaries, then those of KUBEBUILDER_ASSETS, unless the caller
// requests a version. Those on PATH are used only if the caller requests them with Installed: tests
// run on the versions of go.mod.
func findBinaries(ctx context.Context, opts Options) (*Binaries, error) {
	found, err := opts.Binaries, error(nil)
	if dir := os.Getenv(assetsVariable); found == nil && dir != "" && opts.Version == "" {
		found, err = assets(dir)
	}
	if err != nil {
		return nil, err
	}
	if found == nil {
		multi, err := BuildVersion(ctx, opts.Version, opts.Output)
		return &Binaries{multi: multi}, err
	}
	if !opts.NoControllerManager {
		return found, found.missing(controllerManagerBinary)
	}
	return found, nil
}

// HasControllerManager reports whether a control plane of these binaries can have a controller
// manager. setup-envtest installs none.
func (b *Binaries) HasControllerManager() bool { return b.missing(controllerManagerBinary) == nil }

// HasKubectl reports whether [Cluster.WriteKubectl] can write one.
func (b *Binaries) HasKubectl() bool { return b.missing(kubectlBinary) == nil }

// Dir returns the directory of etcd, for people.
func (b *Binaries) Dir() string {
	if b.multi != "" {
		return filepath.Dir(b.multi)
	}
	return filepath.Dir(b.paths[etcdBinary])
}

func (b *Binaries) missing(names ...string) error {
	for _, name := range names {
		if b.multi == "" && b.paths[name] == "" {
			return fmt.Errorf("the control plane lacks a binary: %s does not exist", filepath.Join(b.Dir(), name))
		}
	}
	return nil
}

func (b *Binaries) argv(component string, args []string) []string {
	if b.multi != "" {
		return append([]string{b.multi, component}, args...)
	}
	return append([]string{b.paths[component]}, args...)
}
