package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// One template has the chart's part for each bus. Others may name the NATS server that the chart
// installs.
func TestOneTemplateNamesBuses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "charts", "kubecdc", "templates")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	bus := regexp.MustCompile(`(?i)nats|kafka|slack`)
	server := regexp.MustCompile(
		`Values\.nats|v\.nats\.enabled|nats\.enabled|NATS server|kubecdc\.nats"|nats\.fullname|\$nats|bus\.nats |set \$bus "nats"|"nats://%s\.%s:4222"|sets bus\.nats`)
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(raw), "\n") {
			if f.Name() != "_buses.tpl" && bus.MatchString(server.ReplaceAllString(line, "")) {
				t.Errorf("%s:%d names a bus: %s", f.Name(), i+1, line)
			}
		}
	}
}
