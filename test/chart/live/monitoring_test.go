package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/test/wait"
)

// The operator's Go module has the definitions of ServiceMonitor, PodMonitor and PrometheusRule.
const (
	operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	operatorSum    = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)

var definitions = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

func (w *world) installMonitoring(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", operatorModule)
	cmd.Dir = w.dir // in no module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go mod download %s: %w\n%s", operatorModule, err, out)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil {
		return err
	}
	if module.Sum != operatorSum {
		return fmt.Errorf("%s has the sum %s, want %s", operatorModule, module.Sum, operatorSum)
	}
	names := []string{"servicemonitors", "podmonitors", "prometheusrules"}
	for _, name := range names {
		file := filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+name+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if _, err := w.dynamic.Resource(definitions).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, name := range names {
		resource := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: name}
		err := wait.For(ctx, time.Minute, func() error {
			_, err := w.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	w.mapper.Reset()
	return nil
}
