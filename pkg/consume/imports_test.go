package consume_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/kubecdc/kubecdc/"

// TestImports holds the list of what a program gets with the package: a program that parses and
// tracks compiles no client of a bus, nothing of Kubernetes, and no SDK. Each source brings its own
// client.
func TestImports(t *testing.T) {
	parses := []string{
		"github.com/klauspost/compress", // internal/object compresses last-known objects
		module + "internal/object", module + "internal/object/jsonscan", module + "pkg/consume",
	}
	for pkg, want := range map[string][]string{
		"pkg/consume":          parses,
		"pkg/consume/fromfile": append(slices.Clone(parses), module+"pkg/consume/fromfile"),
		"pkg/consume/cloudevents": append(slices.Clone(parses), module+"pkg/consume/cloudevents",
			"github.com/cloudevents/sdk-go",
			"github.com/json-iterator/go", "github.com/modern-go"),
		"pkg/consume/fromnats": append(slices.Clone(parses), module+"pkg/consume/fromnats",
			module+"internal/bus/nats/natsversion",
			module+"internal/pause", module+"internal/bus/nats/searchtime", module+"internal/bus/nats/silence",
			module+"internal/versions", "github.com/nats-io",
			"golang.org/x"),
		"pkg/consume/fromkafka": append(slices.Clone(parses), module+"pkg/consume/fromkafka",
			module+"internal/bus/kafka/kafkaid", module+"internal/bus/kafka/kafkanet", module+"internal/pause",
			"github.com/segmentio/kafka-go", "github.com/pierrec/lz4"),
	} {
		allowed := make(map[string]bool) // whether the package needs it
		for _, prefix := range want {
			allowed[prefix] = false
		}
		var more []string
		for _, imported := range dependencies(t, module+pkg) {
			i := slices.IndexFunc(want, func(prefix string) bool {
				own := strings.HasPrefix(prefix, module)
				return imported == prefix || !own && strings.HasPrefix(imported, prefix+"/")
			})
			if i < 0 {
				more = append(more, imported)
			} else {
				allowed[want[i]] = true
			}
		}
		if diff := cmp.Diff([]string(nil), more); diff != "" {
			t.Errorf("%s imports more than it may:\n%s", pkg, diff)
		}
		for prefix, isNeeded := range allowed {
			if !isNeeded {
				t.Errorf("%s does not import %s: remove it from the list", pkg, prefix)
			}
		}
	}
}

// dependencies returns all packages that a package imports, also indirectly, beside the standard
// library.
func dependencies(t *testing.T, pkg string) (all []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}
