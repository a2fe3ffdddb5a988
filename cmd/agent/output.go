package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is the value of --output for a command that prints a report.
type output struct {
	format  string
	formats []string
}

// add adds the flag. The first format is the default.
func (o *output) add(cmd *cobra.Command, formats ...string) {
	o.format, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", "`format`: "+strings.Join(formats, ", "))
	completeWords(cmd, "output", formats...)
}

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	switch {
	case slices.Contains(o.formats, text):
		o.format = text
		return nil
	case text == "text" && slices.Contains(o.formats, "table"):
		return flagError("--output: text is renamed to table")
	}
	return flagError(fmt.Sprintf("--output: must be one of %s, got %q", strings.Join(o.formats, ", "), text))
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (*output) Type() string { return "string" }

// structured reports whether the output is for programs: json or yaml.
func (o *output) structured() bool { return o.format == "json" || o.format == "yaml" }

// write writes a value as JSON or YAML, with the same keys.
func (o *output) write(w io.Writer, v any) error {
	if o.format == "json" {
		return printJSON(w, v)
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
