package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestShippedConfiguration runs the agent with configs/kubecdc.yaml, on other ports, and subscribes with a plain NATS client
// to the subject that README subscribes to.
func TestShippedConfiguration(t *testing.T) {
	slow(t)
	p := sharedPlane(t)
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

	bus := startBus(t)
	sub, err := bus.connect(t).SubscribeSync(string(subject[1]))
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, p, agentConfig{Bus: bus, File: string(config)})
	a.ready(t)
	const namespace = "shipped"
	p.newNamespace(t, namespace)
	if _, err := p.api.create(t.Context(), collection("deployments.apps", namespace), map[string]any{
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
	eventually(t, time.Minute, func() error {
		m, err := sub.NextMsg(time.Second)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(m.Subject, ".object.apps.deployments."+namespace+".web") || !strings.Contains(string(m.Data), `"op":"c"`) {
			return fmt.Errorf("last record on %s: %.200s", m.Subject, m.Data)
		}
		return nil
	})
	status, err := a.get(t.Context(), "/readyz")
	if err != nil || !strings.Contains(status, "deployments.apps: watching") || strings.Contains(status, "\n    events: ") {
		t.Errorf("/readyz (%v):\n%s", err, status)
	}
}
