package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/config"
)

const docsFile = "../../docs/reference/configuration.md"

// TestDocs: docs/reference/configuration.md is what types and comments make.
func TestDocs(t *testing.T) {
	golden(t, docsFile, makeDocs(t))
}

func makeDocs(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	about, _ := prose(t)
	b.WriteString(
		"<!-- Made by `go test ./internal/config -update` from the Go types and the comments of configs/kubecdc.yaml. -->\n\n" +
			"# Configuration\n\n" +
			"This reference is for platform engineers who configure the agent.\n")
	for paragraph := range strings.SplitSeq(about, "\n\n") {
		if !strings.HasPrefix(paragraph, "yaml-language-server") {
			fmt.Fprintf(&b, "\n%s\n", markdown(strings.ReplaceAll(paragraph, "\n", " ")))
		}
	}
	b.WriteString(
		"\nThe whole file with its comments: [configs/kubecdc.yaml](../../configs/kubecdc.yaml), or `kubecdc config default`. " +
			"Which rule takes a resource, and on which subject its events go: `kubecdc config explain deployments.apps --config kubecdc.yaml`.\n")

	entries := reference(t)
	for _, top := range entries {
		if top.parent() != "" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", top.key, markdown(top.prose))
		if facts := facts(t, &top); len(facts) > 0 {
			fmt.Fprintf(&b, "\n%s\n", strings.Join(facts, " · "))
		}
		var rows []string
		for _, e := range entries {
			if strings.HasPrefix(e.path, top.path+".") || strings.HasPrefix(e.path, top.path+"[]") {
				rows = append(rows, row(t, &e))
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\n| key | type | default | meaning |\n|---|---|---|---|\n%s", strings.Join(rows, ""))
		}
	}
	return b.String()
}

// facts are type, default and what is allowed of a key that has no table.
func facts(t *testing.T, e *entry) []string {
	t.Helper()
	var list []string
	if typeInWords(e.typ) != "mapping" {
		list = append(list, "Type: "+typeInWords(e.typ))
		if e.path == "apiVersion" {
			list = append(list, "required: "+code(config.APIVersion))
		}
	}
	if e.value != nil {
		list = append(list, "default: "+code(inWords(t, e.value)))
	}
	if a := allowed(e); a != "" {
		list = append(list, "allowed: "+a)
	}
	return list
}

func row(t *testing.T, e *entry) string {
	t.Helper()
	value := ""
	switch {
	case slices.Contains(required(), e.path):
		value = "required"
	case e.value != nil:
		value = code(inWords(t, e.value))
	}
	meaning := markdown(e.prose)
	if a := allowed(e); a != "" {
		meaning += " Allowed: " + a + "."
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", e.path, typeInWords(e.typ), cell(value), cell(meaning))
}

// allowed is the choice or the range of a key's values.
func allowed(e *entry) string {
	if limit, ok := config.Limits()[e.path]; ok {
		return strings.NewReplacer("between ", "", " and ", " to ").Replace(limit.String())
	}
	var values []string
	for _, v := range choices(e) {
		values = append(values, code(v))
	}
	return strings.Join(values, ", ")
}

// markdown keeps asterisks and dollars from meaning emphasis and mathematics outside of code.
func markdown(s string) string {
	parts := strings.Split(s, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("*", `\*`, "$", `\$`, "<", `\<`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

func code(s string) string { return "`" + s + "`" }

// cell escapes what would end a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
