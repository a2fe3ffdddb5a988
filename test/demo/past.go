package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// past reads the record back, as a person would, while the workload continues.
type past struct {
	binary string
	screen *screen
	agent  *agent // runs when a method is called
}

// history shows the versions of the settings.
func (p *past) history(ctx context.Context) error {
	return p.show(ctx, "history", "configmap", "settings", "-n", namespace, "--data-dir", p.agent.data)
}

// get shows the settings as they were created. A snapshot first lets the record pass that moment,
// which takes a minute otherwise.
func (p *past) get(ctx context.Context) error {
	raw, err := p.run(ctx, "history", "configmap", "settings", "-n", namespace, "--data-dir", p.agent.data, "-o",
		"json").Output()
	if err != nil {
		return fmt.Errorf("kubecdc history: %w", err)
	}
	var versions struct {
		Versions []struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(raw, &versions); err != nil || len(versions.Versions) == 0 {
		return fmt.Errorf("kubecdc history has shown no version of the settings (%w)", err)
	}
	if out, err := p.run(ctx, "snapshot", "configmaps").CombinedOutput(); err != nil {
		return fmt.Errorf("kubecdc snapshot: %w: %s", err, out)
	}
	return p.show(ctx, "get", "configmap", "settings", "-n", namespace, "--at",
		"rv:"+versions.Versions[0].ResourceVersion, "--exact", "-o", "yaml",
		"--data-dir", p.agent.data)
}

func (p *past) show(ctx context.Context, args ...string) error {
	out, err := p.run(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubecdc %s: %w: %s", args[0], err, out)
	}
	p.screen.printf("%s", out)
	return nil
}

func (p *past) run(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Env = append(append(os.Environ(), p.screen.environment()...), "XDG_RUNTIME_DIR="+filepath.Dir(p.agent.data),
		"KUBECDC_AGENT="+p.agent.http)
	return cmd
}
