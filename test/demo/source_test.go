package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// TestWhereTheControlPlaneComesFrom: the first of KUBEBUILDER_ASSETS, PATH, what was built before,
// a download, a build.
func TestWhereTheControlPlaneComesFrom(t *testing.T) {
	install := func() string {
		dir := t.TempDir()
		for _, name := range []string{"etcd", "kube-apiserver"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	assets := install()
	path := install()
	none := t.TempDir()
	fails := errors.New("setup-envtest: no progress for 20s\nand more lines")
	for name, c := range map[string]struct {
		assets, path string
		built        bool
		download     error
		steps        []string // that it takes
		what         string
	}{
		"KUBEBUILDER_ASSETS": {
			assets: assets,
			path:   path,
			built:  true,
			what:   "etcd and kube-apiserver of " + assets,
		},
		"PATH": {path: path, built: true, what: "etcd and kube-apiserver of " + path},
		"built before": {path: none, built: true, steps: []string{
			"build",
		}, what: "etcd, kube-apiserver and kube-controller-manager"},
		"a download": {path: none, steps: []string{
			"download",
		}, what: "etcd and kube-apiserver of " + path},
		"a download that fails": {path: none, download: fails, steps: []string{
			"download", "build",
		}, what: "etcd, kube-apiserver and kube-controller-manager"},
		"Ctrl-C during a download": {path: none, download: context.Canceled, steps: []string{"download"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", c.assets)
			t.Setenv("PATH", c.path)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var shown buffer
			var steps []string
			d := &demo{
				screen: newScreen(&shown, func(string) string { return "" }),
				built:  func(context.Context) bool { return c.built },
				download: func(context.Context, io.Writer) (*controlplane.Binaries, error) {
					steps = append(steps, "download")
					if c.download != nil {
						if errors.Is(c.download, context.Canceled) {
							stop()
						}
						return nil, c.download
					}
					t.Setenv("PATH", path)
					return controlplane.Installed()
				},
				build: func(context.Context, io.Writer) (string, error) {
					steps = append(steps, "build")
					return "", nil
				},
			}
			opts, what, err := d.controlPlane(ctx)
			if what != c.what || !slices.Equal(steps, c.steps) || (err != nil) != (ctx.Err() != nil) {
				t.Errorf("took %v: %q, %v; want %v: %q", steps, what, err, c.steps, c.what)
			}
			if downloaded := slices.Equal(steps, []string{"download"}) && err == nil; downloaded &&
				!opts.NoControllerManager {
				t.Error("it would start a controller manager, which was not downloaded")
			}
			says := strings.Contains(shown.String(),
				"building from source, since the download failed: setup-envtest: no progress for 20s\n")
			wants := c.download == fails //nolint:errorlint // the same value
			if says != wants || strings.Count(shown.String(), "\n") > 1 {
				t.Errorf("shown:\n%s", &shown)
			}
		})
	}
}
