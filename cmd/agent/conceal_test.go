package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/configs"
)

// property is a part of the configuration's JSON Schema.
type property struct {
	Properties           map[string]property `json:"properties"`
	Items                *property           `json:"items"`
	AdditionalProperties json.RawMessage     `json:"additionalProperties"`
}

// leaves appends a document, in YAML's flow style, for each value of the configuration: value is in its place.
func (p *property) leaves(in func(text string) string, value string, all map[string]string, path string) {
	switch {
	case p.Items != nil:
		p.Items.leaves(func(text string) string { return in("[" + text + "]") }, value, all, path+"[0]")
	case len(p.Properties) > 0:
		for name, below := range p.Properties {
			below.leaves(func(text string) string { return in("{" + name + ": " + text + "}") }, value, all, strings.TrimPrefix(path+"."+name, "."))
		}
	}
	all[path] = in(value) // of an object or a list too: its type is wrong
}

// TestConfigPrintsNoVariable sets each key of the configuration from the environment: valid or not, no command prints a part of the value.
func TestConfigPrintsNoVariable(t *testing.T) {
	var schema property
	if err := json.Unmarshal(configs.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	top := func(text string) string { return "{apiVersion: kubecdc.dev/v1, " + strings.TrimPrefix(text, "{") }
	schema.leaves(top, `"${SECRET_VALUE}"`, all, "")
	delete(all, "")
	delete(all, "apiVersion")
	if len(all) < 150 {
		t.Fatalf("the schema has %d keys", len(all))
	}
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	secrets := []string{
		"hunter2-wellhidden", "nats://hunter2:wellhidden@hidden-host:4222", `op == "wellhidden" && hidden_name([`, "3600000000s",
		"hidden\n  value: wellhidden",
	}
	if testing.Short() {
		secrets = secrets[:1]
	}
	for n, secret := range secrets {
		t.Setenv("SECRET_VALUE", secret)
		commands := [][]string{{"check", "-o", "json", file}}
		if n == 0 {
			commands = append(commands, []string{"check", file}, []string{"explain", "configmaps", "--config", file})
		}
		for path, document := range all {
			if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range commands {
				var stdout, stderr bytes.Buffer
				run(t.Context(), append([]string{"config"}, args...), &stdout, &stderr)
				printed := strings.ToLower(stdout.String() + stderr.String())
				for _, part := range []string{"hunter2", "hidden", "wellhid", "3600000000"} {
					if strings.Contains(printed, part) {
						t.Errorf("%s with %q: config %s prints %s:\n%s", path, secret, args[0], part, printed)
						break
					}
				}
			}
		}
	}
}
