package chart_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/test/chart"
)

var update = flag.Bool("update", false, "write the generated files of the chart anew")

const (
	configSchema = "../../configs/kubecdc.schema.json"
	ownSchema    = "testdata/values.schema.yaml"
)

type schema = map[string]any

// generated compares a file of the chart with the expected content.
func generated(t *testing.T, name string, want []byte) {
	t.Helper()
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf(
			"%s is not current (-want +got), write it anew with: cd test && go test ./chart -run Schema -update\n%s",
			name, diff)
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// The values are the configuration file and what Kubernetes needs.
func TestSchemaOfValues(t *testing.T) {
	var own, file schema
	readYAML(t, ownSchema, &own)
	readYAML(t, configSchema, &file)
	delete(own, "$defs") // the file's anchors, resolved where they are used

	properties := file["properties"].(schema)
	delete(properties, "apiVersion") // the chart sets them
	delete(properties, "mode")
	delete(properties["watch"].(schema), "minItems") // empty: the chart's default
	moved(file, "#/properties/", "#/properties/config/properties/")
	bus := properties["bus"].(schema)
	withoutRequired(bus)         // each may be in either part
	delete(bus, "minProperties") // the template requires one of both together
	delete(bus, "maxProperties")
	quietly(file)
	bus["type"] = []any{"object", "null"}

	properties["relay"] = schema{"deprecated": true, "description": "Renamed to `relays`."} // the template reports that

	values := own["properties"].(schema)
	values["config"] = schema{
		"type": []any{"object", "null"}, "additionalProperties": false, "properties": properties,
	}
	values["bus"] = schema{"$ref": "#/properties/config/properties/bus"}
	describe(t, values)
	generated(t, "values.schema.json", indented(t, own))
}

// moved renames the targets of references.
func moved(v any, from, to string) {
	switch v := v.(type) {
	case schema:
		if ref, ok := v["$ref"].(string); ok {
			v["$ref"] = strings.Replace(ref, from, to, 1)
		}
		for _, inner := range v {
			moved(inner, from, to)
		}
	case []any:
		for _, inner := range v {
			moved(inner, from, to)
		}
	}
}

// withoutRequired allows the keys of the buses in two places.
func withoutRequired(bus schema) {
	for _, kind := range bus["properties"].(schema) {
		delete(kind.(schema), "required")
	}
}

var scheme = regexp.MustCompile(`^\^ ?\*?(\([a-z|]+\)|https\?)://`)

// quietly allows any URL that has a scheme. helm prints a value that the schema rejects, and a URL
// may have a password in it. The template rejects it without printing it.
func quietly(v any) {
	switch v := v.(type) {
	case schema:
		if pattern, ok := v["pattern"].(string); ok {
			if begin := scheme.FindString(pattern); begin != "" {
				v["pattern"] = begin + `|\$`
			}
		}
		for _, inner := range v {
			quietly(inner)
		}
	case []any:
		for _, inner := range v {
			quietly(inner)
		}
	}
}

var comment = regexp.MustCompile(`(?m)^( *)# -- ((?:.*\n)(?: *# .*\n)*)([ \t]*)([A-Za-z]+):`)

// describe sets the description of each key to its comment in values.yaml.
func describe(t *testing.T, values schema) {
	t.Helper()
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	parent := regexp.MustCompile(`(?m)^([a-zA-Z]+):`)
	described := 0
	for _, at := range comment.FindAllSubmatchIndex(text, -1) {
		part := func(i int) string { return string(text[at[2*i]:at[2*i+1]]) }
		words := strings.Fields(
			strings.ReplaceAll(regexp.MustCompile(`(?m)^ *# @default.*$`).ReplaceAllString(part(2), ""), "# ", " "))
		in, key := values, part(4)
		if part(3) != "" {
			above := parent.FindAllSubmatch(text[:at[0]], -1)
			in = values[string(above[len(above)-1][1])].(schema)["properties"].(schema)
		}
		s, ok := in[key].(schema)
		if !ok {
			t.Errorf("values.yaml has the key %s, and %s has not", key, ownSchema)
			continue
		}
		copied := schema{"description": strings.Join(words, " ")} // anchors share a value
		for k, v := range s {
			if _, said := s["description"]; !said || k != "description" {
				copied[k] = v
			}
		}
		in[key] = copied
		described++
	}
	if described < len(values)-3 {
		t.Errorf("%d keys of values.yaml have a comment, of %d", described, len(values))
	}
}

// The schema has the groups of resources that are configured without one, for the roles.
func TestSchemaOfResources(t *testing.T) {
	groups := map[string][]string{}
	var clusterScoped []string
	for _, name := range kinds.Plurals() {
		var p config.ResourcePattern
		if err := p.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		groups[name] = p.Groups()
		if r, err := config.FindResource(name); err != nil {
			t.Fatal(err)
		} else if r.ClusterScoped {
			clusterScoped = append(clusterScoped, name)
		}
	}
	slices.Sort(clusterScoped)
	generated(t, "files/resources.json", indented(t, groups))
	generated(t, "files/cluster-scoped.json", indented(t, clusterScoped))
}

// The interval of scrapes is a duration as Prometheus reads it: units from years to milliseconds,
// each once, in this order.
func TestScrapeInterval(t *testing.T) {
	h := newHelm(t)
	for _, monitor := range []string{"serviceMonitor", "podMonitor"} {
		for interval, valid := range map[string]bool{
			"30s":   true,
			"1d":    true,
			"2w":    true,
			"1y2w":  true,
			"1h30m": true,
			"500ms": true,
			"1m1h":  false,
			"1.5h":  false,
			"30":    false,
			"":      false,
		} {
			_, err := h.template(t.Context(), release, "--set", "bus.nats.url=nats://nats.messaging:4222", "--set",
				monitor+".enabled=true", "--set-string", monitor+".interval="+interval)
			if valid != (err == nil) {
				t.Errorf("%s.interval=%q: %v, want valid: %v", monitor, interval, err, valid)
			}
		}
	}
}
