package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// TestOutputVariable runs each command that has --output with each format in KUBECDC_OUTPUT. A
// format that a command does not have is ignored: the variable is set once for all of them.
func TestOutputVariable(t *testing.T) {
	record := []string{"--bus", "file:testdata/record.jsonl"}
	agent := []string{"--agent", "127.0.0.1:1"}
	lines := map[string][]string{
		"status":          agent,
		"snapshot":        append([]string{"pods"}, agent...),
		"dead-letter":     agent,
		"relay status":    {"--bus", "nats://127.0.0.1:1", "--name", "web"},
		"checkpoint show": {"--data-dir", t.TempDir()},
		"config check":    {"../../configs/kubecdc.yaml"},
		"config explain":  {"pods"},
		"rbac":            {},
		"version":         {},
		"get":             append([]string{"deploy/web", "--at", "rv:145"}, record...),
		"get (for apply)": append([]string{"deploy/web", "--at", "rv:145", "--for-apply"}, record...),
		"history":         append([]string{"deploy/web"}, record...),
		"diff":            append([]string{"rv:140", "rv:145"}, record...),
		"blame":           append([]string{"deploy/web", "-n", "shop", "--at", "rv:145"}, record...),
		"audit": append(
			[]string{"deploy", "--since", "2026-11-20T14:01:00Z", "--until", "2026-11-20T14:06:00Z"}, record...),
		"record end":        {"3f0a5c1e9b7d2846", "--dry-run", "--bus", "nats://127.0.0.1:1"},
		"tail":              append([]string{"--no-follow"}, record...),
		"tail (with diffs)": append([]string{"--no-follow", "--diff"}, record...),
	}
	var have []string
	for line := range lines {
		name, _, _ := strings.Cut(line, " (")
		have = append(have, name)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("output") != nil {
			if name := strings.TrimPrefix(cmd.CommandPath(), "kubecdc "); !slices.Contains(have, name) {
				t.Errorf("kubecdc %s has --output, and the test has no line for it", name)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot(&bytes.Buffer{}, &bytes.Buffer{}))

	for line, args := range lines {
		name, _, _ := strings.Cut(line, " (")
		for _, format := range slices.Concat(objectFormats()[:5],
			[]string{printer.Diff, printer.Markdown, "jsonpath={.kind}"}) {
			t.Run(line+"/"+format, func(t *testing.T) {
				t.Setenv("KUBECDC_OUTPUT", format)
				var stdout, stderr bytes.Buffer
				code := run(t.Context(), slices.Concat(strings.Fields(name), args), &stdout, &stderr)
				if code == exitUsage {
					t.Errorf("exit code %d:\n%s", code, &stderr)
				}
			})
		}
		t.Run(line+"/xml", func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), slices.Concat(strings.Fields(name), args, []string{"-o", "xml"}), &stdout, &stderr)
			if want := "kubecdc: --output: must be one of "; code != exitUsage ||
				!strings.HasPrefix(stderr.String(), want) {
				t.Errorf("-o xml: exit code %d, want %d and %q:\n%s", code, exitUsage, want, &stderr)
			}
		})
	}
}
