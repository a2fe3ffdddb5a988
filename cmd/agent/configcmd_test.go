package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
)

// What the command prints is, byte for byte, what stands in the repository.
func TestConfigFilesAreThoseOfTheRepository(t *testing.T) {
	for what, file := range map[string]string{
		"default": "../../configs/kubecdc.yaml",
		"schema":  "../../configs/kubecdc.schema.json",
	} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"config", what}, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("config %s: exit code %d, %s", what, code, &stderr)
		}
		if diff := cmp.Diff(string(want), stdout.String()); diff != "" {
			t.Errorf("config %s (-%s +printed):\n%s", what, file, diff)
		}
	}
}

// A template that the publisher would refuse is refused with its place, and the default one is not.
func TestSubjectIsChecked(t *testing.T) {
	if errs := checkTemplates(config.Default()); errs != nil {
		t.Errorf("default: %v", errs)
	}
	c := config.Default()
	c.Bus.NATS.Subject = "{name}.kubecdc"
	if errs := checkTemplates(c); len(errs) != 1 || errs[0].Path != "bus.nats.subject" {
		t.Errorf("got %v", errs)
	}
	c.Bus = config.Bus{Stdout: &config.Stdout{}}
	if errs := checkTemplates(c); errs != nil {
		t.Errorf("stdout: %v", errs)
	}
}
