package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// binaries is where the components are: in one multi-call binary, or in a directory with one for each.
type binaries struct {
	multi string
	dir   string
}

// findBinaries prefers KUBEBUILDER_ASSETS, which says that somebody has chosen what to test against.
func findBinaries(ctx context.Context, opts Options) (binaries, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		multi, err := Build(ctx, opts.Output)
		return binaries{multi: multi}, err
	}
	need := []string{"etcd", "kube-apiserver"}
	if !opts.NoControllerManager {
		need = append(need, "kube-controller-manager")
	}
	for _, name := range need {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return binaries{}, fmt.Errorf("KUBEBUILDER_ASSETS lacks a binary (unset it and one is built): %w", err)
		}
	}
	return binaries{dir: dir}, nil
}

func (b binaries) etcd(args []string) []string      { return b.argv("etcd", args) }
func (b binaries) apiServer(args []string) []string { return b.argv("kube-apiserver", args) }
func (b binaries) controllerManager(args []string) []string {
	return b.argv("kube-controller-manager", args)
}

func (b binaries) argv(component string, args []string) []string {
	if b.multi != "" {
		return append([]string{b.multi, component}, args...)
	}
	return append([]string{filepath.Join(b.dir, component)}, args...)
}
