package chart

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/tool"
)

// HelmVersion is the version with which the chart is tested.
var HelmVersion = tool.Helm.Version

// Helm returns the path of the helm binary: KUBECDC_HELM, or the one in the repository's
// .cache/bin, which it builds if it is not there yet. It reports that to w.
func Helm(ctx context.Context, w io.Writer) (string, error) {
	if path := os.Getenv("KUBECDC_HELM"); path != "" {
		return filepath.Abs(path)
	}
	root, err := build.Repository()
	if err != nil {
		return "", err
	}
	return tool.Helm.Path(ctx, root, w)
}

// Dir is the chart's directory.
func Dir() (string, error) {
	root, err := build.Repository()
	return filepath.Join(root, "charts", "kubecdc"), err
}

// Lint runs helm lint over the chart and returns its output. Warnings are errors.
func Lint(ctx context.Context, helm string, args ...string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, helm, append([]string{"lint", "--strict", dir}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm lint: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
