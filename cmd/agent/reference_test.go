package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/reference/cli.md anew")

// docs/reference/cli.md has the same text as --help.
func TestReferenceIsCurrent(t *testing.T) {
	const file = "../../docs/reference/cli.md"
	got := reference(newRoot(io.Discard, io.Discard))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf(
			"docs/reference/cli.md is not what the commands say; write it anew with 'go test ./cmd/agent -run Reference -update' (-file +commands):\n%s",
			diff)
	}
}

// reference returns one page about all commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(
		"<!-- Written by go test ./cmd/agent -run Reference -update from what the commands say of themselves. -->\n\n# The command line\n\n" +
			"This reference is for everybody who runs kubecdc: it describes each command with its flags.\n\n")
	for _, c := range commands(root)[1:] {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	for _, c := range commands(root) {
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		if c.Runnable() && !c.HasSubCommands() {
			fmt.Fprintf(&b, "```\n%s\n```\n\n", c.UseLine())
		}
		// Keep the layout of a terminal: not all of the text is Markdown.
		long := c.Long
		if long == "" {
			long = c.Short + "."
		}
		fmt.Fprintf(&b, "```text\n%s\n```\n", strings.TrimSpace(long))
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", unindent(c.Example))
		}
		if flags := strings.TrimRight(c.LocalFlags().FlagUsages(), "\n"); flags != "" {
			fmt.Fprintf(&b, "\n```text\n%s\n```\n", flags)
		}
	}
	return b.String()
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// Each visible command has a short description and an example, and each flag has a description.
func TestHelpIsThere(t *testing.T) {
	for _, c := range commands(newRoot(io.Discard, io.Discard)) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 70 ||
			strings.ToUpper(c.Short[:1]) != c.Short[:1] {
			t.Errorf("%s: short description %q", c.CommandPath(), c.Short)
		}
		if !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s: no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: an example without two spaces before it: %q", c.CommandPath(), line)
			}
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if len([]rune(line)) > 121 {
				t.Errorf("%s: wider than 120 columns: %q", c.CommandPath(), line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			if usage == "" || name != "" && f.Value.Type() != "duration" && !strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: does not say what it takes: %q", c.CommandPath(), f.Name, f.Usage)
			}
		})
	}
}

func TestOutputFormatsComplete(t *testing.T) {
	for _, c := range commands(newRoot(io.Discard, io.Discard)) {
		if f := c.Flags().Lookup("output"); f != nil {
			if _, ok := c.GetFlagCompletionFunc("output"); !ok {
				t.Errorf("%s --output: completes nothing", c.CommandPath())
			}
		}
	}
}
