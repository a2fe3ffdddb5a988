package config_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/kubecdc/kubecdc/"

// TestImports holds what a configuration is compiled with, also indirectly: settings and checks.
// None of these packages is a client of a bus, sends to Slack, or writes to a terminal. Package
// publish has the settings of TLS. Package stdout is whole, because it has no settings.
func TestImports(t *testing.T) {
	want := []string{
		module + "internal/config", module + "internal/config/check", module + "internal/config/yamldoc",
		module + "internal/duration", module + "internal/pause",
		module + "internal/encode", module + "internal/object", module + "internal/object/jsonscan",
		module + "internal/object/kinds", module + "internal/object/patch", module + "internal/publish",
		module + "internal/bus/catalog", module + "internal/bus/driver", module + "internal/bus/subject",
		module + "internal/bus/http/httpconfig", module + "internal/bus/kafka/kafkaconfig",
		module + "internal/bus/nats/natsconfig", module + "internal/bus/stdout",
		module + "internal/relay/slackconfig",
		"github.com/kubecdc/kubecdc/internal/wording",
		module + "pkg/consume",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", module+"internal/config").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	clients := []string{"github.com/nats-io", "github.com/segmentio", "github.com/slack-go", "k8s.io/client-go"}
	var own []string
	for imported := range strings.FieldsSeq(string(out)) {
		for _, client := range clients {
			if strings.HasPrefix(imported, client) {
				t.Errorf("internal/config imports %s", imported)
			}
		}
		if strings.HasPrefix(imported, module) {
			own = append(own, imported)
		}
	}
	slices.Sort(own)
	slices.Sort(want)
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("internal/config imports (-want +got):\n%s", diff)
	}
}
