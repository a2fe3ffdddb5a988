package main

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/nats"
	publishstdout "github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/filter"
)

// The command prints the files of the repository, byte for byte.
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

// A template that the publisher would reject is reported with its path. The default template is
// valid.
func TestSubjectIsChecked(t *testing.T) {
	if err := config.Default().Validate(); err != nil {
		t.Errorf("default: %v", err)
	}
	c := config.Default()
	c.Bus["nats"].(*nats.Config).Subject = "{name}.kubecdc"
	var errs yamldoc.Errors
	if err := c.Validate(); !errors.As(err, &errs) || len(errs) != 1 || errs[0].Path != "bus.nats.subject" {
		t.Errorf("got %v", err)
	}
	c.UseBus(config.Bus{"stdout": &publishstdout.Config{}})
	if err := c.Validate(); err != nil {
		t.Errorf("stdout: %v", err)
	}
}

// Errors in paths and expressions are reported with their positions in the text. The default has no
// such errors.
func TestSentIsChecked(t *testing.T) {
	if errs := agent.CheckRules(config.Default()); errs != nil {
		t.Errorf("default: %v", errs)
	}
	type place struct {
		Path         string
		Line, Column int
	}
	c := config.Default()
	c.Strip = []string{"spec", `metadata["n\u0061me"]`} // config checks the name as it is written
	c.Watch[0].Redact = []string{`metadata["uid"]`}
	c.Watch[0].Where = "op == \"u\" &&\n  chnged(\"spec\")"
	var got []place
	for _, e := range agent.CheckRules(c) {
		got = append(got, place{e.Path, e.TextLine, e.TextColumn})
	}
	want := []place{{"strip[1]", 1, 1}, {"watch[0].redact[0]", 1, 1}, {"watch[0].where", 2, 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// config accepts exactly the names of the ready-made filters.
func TestNoiseIsThatOfFilters(t *testing.T) {
	names := config.Noise("").Values()
	slices.Sort(names)
	if diff := cmp.Diff(filter.NoiseNames(), names); diff != "" {
		t.Errorf("(-filters +configuration):\n%s", diff)
	}
	for _, n := range names {
		if _, err := filter.New(filter.Options{Noise: []string{n}}); err != nil {
			t.Error(err)
		}
	}
}
