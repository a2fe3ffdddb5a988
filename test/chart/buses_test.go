package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
)

// templates is the directory of the chart's templates.
const templates = "../../charts/kubecdc/templates"

// busTemplates is the file with the chart's part for each bus.
const busTemplates = "_buses.tpl"

// One template has the chart's part for each bus. Others may name the NATS server that the chart
// installs.
func TestOneTemplateNamesBuses(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(templates)
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	// http and stdout are words that templates need for other things.
	names := slices.DeleteFunc(catalog.Names(catalog.Targets()), func(name string) bool {
		return name == "http" || name == "stdout"
	})
	bus := regexp.MustCompile(`(?i)` + strings.Join(names, "|"))
	server := regexp.MustCompile(
		`Values\.nats|v\.nats\.enabled|nats\.enabled|NATS server|kubecdc\.nats"|nats\.fullname|\$nats|bus\.nats |set \$bus "nats"|"nats://%s\.%s:4222"|sets bus\.nats`)
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(templates, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(raw), "\n") {
			if f.Name() != busTemplates && bus.MatchString(server.ReplaceAllString(line, "")) {
				t.Errorf("%s:%d names a bus: %s", f.Name(), i+1, line)
			}
		}
	}
}

// The chart knows the buses of the agent, and has its part for each. Without a name in
// kubecdc.busName, the chart treats a configured bus as none: it opens no port for it, and checks
// neither its address nor its secrets.
func TestChartHasTheBusesOfTheCatalog(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(templates, busTemplates))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	list := regexp.MustCompile(`range list ((?:"\w+" ?)+)-`).FindStringSubmatch(text)
	if list == nil {
		t.Fatal("kubecdc.busName has no list of names")
	}
	want := catalog.Names(catalog.Targets())
	got := strings.Fields(strings.ReplaceAll(list[1], `"`, ""))
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubecdc.busName, -catalog +chart:\n%s", diff)
	}
	for _, name := range want {
		parts := []string{"addresses", "secrecy"} // what the target of a relay needs
		if catalog.Named(catalog.Buses(), name) != nil {
			parts = append(parts, "place", "missing", "kind", "reader")
		}
		for _, part := range parts {
			if !strings.Contains(text, `{{- define "kubecdc.`+name+"."+part+`" -}}`) {
				t.Errorf("the chart has no template kubecdc.%s.%s", name, part)
			}
		}
	}
	values, err := os.ReadFile("../../charts/kubecdc/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range catalog.Buses() {
		if !strings.Contains(string(values), "`bus."+d.Name) {
			t.Errorf("values.yaml does not name bus.%s where it lists the buses", d.Name)
		}
		if d.Name != "stdout" && !strings.Contains(text, "--set bus."+d.Name+".") {
			t.Errorf("kubecdc.busExamples has no example of %s", d.Name)
		}
		_, isReadable := d.Default().(driver.Readable)
		keeps := strings.Contains(text, `define "kubecdc.`+d.Name+`.kind" -}}keeps{{-`)
		if keeps != isReadable {
			t.Errorf("commands can read %s: %t by the agent, %t by the chart", d.Name, isReadable, keeps)
		}
		for _, scheme := range d.Schemes {
			if scheme != "stdout" && !regexp.MustCompile(`[{ ]`+scheme+`: "\d+"`).MatchString(text) {
				t.Errorf("kubecdc.schemes has no port of %s", scheme)
			}
		}
	}
}
