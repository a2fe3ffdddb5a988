package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRules(t *testing.T) {
	for _, tt := range []struct {
		text, rule string // the rule up to its colon; empty: none is broken
	}{
		{"When `snapshot.completed` arrives, delete every object that was not read.", ""},
		{"What of the scope was not read does not exist.", "subject, subject"},
		{"Who cannot renew the Lease stops.", "subject"},
		{"Where the bus is away, the agent waits.", "subject"},
		{"Of created objects the outline is shown.", "subject"},
		{"What is a gap?", ""},
		{"What a failed list does: `failed` in `failure.go`.", ""},
		{"`kubecdc status` prints what is wrong.", ""},
		{"The metric tells whether the bus is away.", "told"},
		{"Silence is told from death.", "told"},
		{"Teletext is not used.", ""},
		{"A snapshot follows behind the gap.", "behind"},
		{"Several API servers run behind one address.", ""},
		{"An agent behind a corporate proxy sets `HTTPS_PROXY`.", ""},
		{"The consumer falls behind.", ""},
		{"The store is two batches behind the reader.", ""},
		{"The checkpoint is not of it.", "of it"},
		{"The agent reads all of it, or half of it.", ""},
		{"The agent remembers its position.", "personification"},
		{"The standby stands by.", "personification"},
		{"A restart goes on there.", "goes on"},
		{"Begin anew.", "archaic"},
		{"A receiver that is away is not taken for one that refuses.", "taken for"},
		{"The agent retries (" + strings.Repeat("word ", 40) + ").", ""},
		{strings.Repeat("word ", 30) + "`code`.", "long"},
		{
			strings.Repeat("word ", 20) + "`code`. `" + strings.Repeat("code ", 40) + "` " +
				strings.Repeat("word ", 20) + ".", "",
		},
		{"See [a link](https://example.com/told/behind/it) and ![an image](told.svg).", ""},
	} {
		var rules []string
		for _, b := range markdown([]byte(tt.text)) {
			for _, f := range b.check("page.md") {
				rule, _, _ := strings.Cut(f.rule, ":")
				rules = append(rules, rule)
			}
		}
		if got := strings.Join(rules, ", "); got != tt.rule {
			t.Errorf("%s\n\tbreaks %q, want %q", tt.text, got, tt.rule)
		}
	}
}

const page = `# What is told is not checked in headings

A first sentence. A second, e.g. this
one over two lines. kubecdc begins the third.

- an item
  of two lines
- another; with a semicolon

| Where | header |
|---|---|
| a cell; its second part | ` + "`a\\|b`" + ` |

    indented code is told

` + "```sh\ntold\n```" + `
<!-- told
behind it -->
The last.
`

func TestMarkdown(t *testing.T) {
	type found struct {
		Line int
		Text string
	}
	want := []found{
		{3, "A first sentence."},
		{3, "A second, e.g. this one over two lines."},
		{4, "kubecdc begins the third."},
		{6, "an item of two lines"},
		{8, "another; with a semicolon"},
		{12, "a cell;"},
		{12, "its second part"},
		{12, "CODE"},
		{21, "The last."},
	}
	var got []found
	for _, b := range markdown([]byte(page)) {
		for _, s := range b.sentences() {
			got = append(got, found{s.line, s.text})
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sentences (-want +got):\n%s", diff)
	}
}

const source = `package a

// A is told from B.
//
//	told in an example
//go:generate told
type A struct {
	b int // behind it
}

func f(cmd *Command, url *string) {
	cmd = &Command{
		Short: "Say what of it",
		Long: ` + "`Fine.\n\nWhere it is told.\n  told in an example`" + `,
	}
	cmd.Flags().StringVar(url, "told", "", "the bus, "+
		"where it goes on")
	log.Warn("what of it", "told", url)
	log.InfoContext(ctx, "it is told")
	return fmt.Errorf("read %s: where it is: told: %w", url,
		errors.New("fine"))
}
`

const values = `# Told.
# -- It is told.
# key: told
a: # behind it
  b: "# told" # which is
  # told
{{- /* told
and heard */}}
groups:
  - alert: Told
    annotations:
      summary: It is told.
      description: >-
        It is {{ $told }}
        told.
      other: told
`

const notesText = `{{- if .told }}
It is {{ .told }} told.

  told --in a command
{{- end }}
`

func TestRun(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"README.md":            "Fine.\n",
		"CHANGELOG.md":         "",
		"SECURITY.md":          "",
		"CONTRIBUTING.md":      "",
		"examples/README.md":   "Fine.\n",
		"docs/page.md":         "Fine.\n\nIt is told.\n",
		"docs/cli.md":          "<!-- Made by a test. -->\nIt is heard.\n",
		"cmd/agent/a.go":       source,
		"charts/a/values.yaml": values,
		"charts/a/NOTES.txt":   notesText,
		"charts/a/README.md":   "It is told.\n",
		"configs/a.yaml":       "# told\n",
		"internal/a/a.json":    "told",
		"pkg/a/a_test.go":      source,
		"cmd/agent/a_test.go":  source,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args string
		code int
		want []string
	}{
		{"docs", 1, []string{"docs/page.md:3: told"}},
		{"docs README.md", 0, nil},
		{"help", 1, []string{
			"cmd/agent/a.go:13: subject", "cmd/agent/a.go:13: of it", "cmd/agent/a.go:16: subject",
			"cmd/agent/a.go:16: told",
			"cmd/agent/a.go:19: goes on", "docs/cli.md:2: personification",
		}},
		{"chart", 1, []string{
			"charts/a/NOTES.txt:2: told", "charts/a/README.md:1: told", "charts/a/values.yaml:1: told",
			"charts/a/values.yaml:2: told",
			"charts/a/values.yaml:4: behind", "charts/a/values.yaml:6: told", "charts/a/values.yaml:7: told",
			"charts/a/values.yaml:7: personification",
			"charts/a/values.yaml:12: told", "charts/a/values.yaml:14: told", "configs/a.yaml:1: told",
		}},
		{"messages", 1, []string{
			"cmd/agent/a.go:21: subject", "cmd/agent/a.go:21: subject", "cmd/agent/a.go:21: of it",
			"cmd/agent/a.go:22: told",
			"cmd/agent/a.go:23: subject", "cmd/agent/a.go:23: told",
		}},
		{"comments ./cmd/agent pkg/a", 1, []string{
			"cmd/agent/a.go:3: told", "cmd/agent/a.go:8: behind", "cmd/agent/a_test.go:3: told",
			"cmd/agent/a_test.go:8: behind",
			"pkg/a/a_test.go:3: told", "pkg/a/a_test.go:8: behind",
		}},
		{"nothing", 2, nil},
		{"", 2, nil},
	} {
		var stdout, stderr bytes.Buffer
		code := run(root, strings.Fields(tt.args), &stdout, &stderr)
		var got []string
		for line := range strings.Lines(stdout.String()) {
			if !strings.HasPrefix(line, "\t") {
				place, rule, _ := strings.Cut(strings.TrimSpace(line), ": ")
				rule, _, _ = strings.Cut(rule, ":")
				got = append(got, place+": "+rule)
			}
		}
		if code != tt.code || !cmp.Equal(got, tt.want) {
			t.Errorf("prose %s: exit code %d, want %d\n%s%s%s", tt.args, code, tt.code, cmp.Diff(tt.want, got), &stdout,
				&stderr)
		}
	}
}
