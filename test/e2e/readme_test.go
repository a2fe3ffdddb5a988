package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestShippedConfiguration runs the agent with configs/kubecdc.yaml, on other ports, and subscribes
// with a plain NATS client to the subject in the README.
func TestShippedConfiguration(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	root := filepath.Join("..", "..")
	config, err := os.ReadFile(filepath.Join(root, "configs", "kubecdc.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	subject := regexp.MustCompile(`nats sub '([^']+)'`).FindSubmatch(readme)
	if subject == nil {
		t.Fatal("README does not say how to subscribe")
	}

	bus := world.StartBus(t)
	sub, err := bus.Connect(t).SubscribeSync(string(subject[1]))
	if err != nil {
		t.Fatal(err)
	}
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, File: string(config)})
	a.Ready(t)
	const namespace = "shipped"
	p.NewNamespace(t, namespace)
	if _, err := p.API.Create(t.Context(), world.Collection("deployments.apps", namespace), map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}},
			},
		},
	}); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		m, err := sub.NextMsg(time.Second)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(m.Subject, ".object.apps.deployments."+namespace+".web") ||
			!strings.Contains(string(m.Data), `"op":"c"`) {
			return fmt.Errorf("last record on %s: %.200s", m.Subject, m.Data)
		}
		return nil
	})
	status, err := a.Get(t.Context(), "/readyz")
	if err != nil || !strings.Contains(status, "deployments.apps: live\n") ||
		strings.Contains(status, "\n    events: ") {
		t.Errorf("/readyz (%v):\n%s", err, status)
	}
}
