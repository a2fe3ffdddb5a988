package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// Reports have four formats. Commands that show objects have all but printer.Diff, which commands
// have that show changes, as their default. Manifests are YAML or JSON.

func manifestFormats() []string { return []string{printer.YAML, printer.JSON} }

func reportFormats() []string {
	return []string{printer.Table, printer.Wide, printer.JSON, printer.YAML}
}
func objectFormats() []string { return append(reportFormats(), printer.Name, printer.JSONPath) }
func changeFormats() []string { return append([]string{printer.Diff}, objectFormats()...) }
func auditFormats() []string {
	return []string{printer.Table, printer.Markdown, printer.JSON, printer.YAML}
}

// output is the value of --output.
type output struct {
	printer.Format

	formats  []string
	variable bool // Set by the environment, for all commands: flags of the command line override it.
}

// add adds the flag. The first format is the default.
func (o *output) add(cmd *cobra.Command, formats []string) {
	o.Name, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", "`format`: "+listFormats(formats))
	completeWords(cmd, "output", formats...)
}

func listFormats(formats []string) string {
	return strings.ReplaceAll(strings.Join(formats, ", "), printer.JSONPath, printer.JSONPath+"TEMPLATE")
}

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	if template, ok := strings.CutPrefix(text, printer.JSONPath); ok && slices.Contains(o.formats, printer.JSONPath) {
		f, err := printer.Template(template)
		if err != nil {
			return flagError(
				fmt.Sprintf("--output %s: %v; want a template as for kubectl: jsonpath='{.metadata.name}'", text, err))
		}
		o.Format = f
		return nil
	}
	switch {
	case slices.Contains(o.formats, text) && text != printer.JSONPath:
		o.Format = printer.Format{Name: text}
		return nil
	case text == "text" && slices.Contains(o.formats, printer.Table):
		return flagError("--output: text is renamed to table")
	}
	return flagError(fmt.Sprintf("--output: must be one of %s, got %q", listFormats(o.formats), text))
}

// setVariable sets the format that the environment has for all commands. A format that only other
// commands have is ignored.
func (o *output) setVariable(text string) error {
	o.variable = true
	name := text
	if strings.HasPrefix(text, printer.JSONPath) {
		name = printer.JSONPath
	}
	if slices.Contains(append(changeFormats(), printer.Markdown), name) && !slices.Contains(o.formats, name) {
		return nil
	}
	return o.Set(text)
}

// String implements pflag.Value.
func (o *output) String() string { return o.Name }

// Type implements pflag.Value.
func (*output) Type() string { return "string" }

// write writes a value as JSON or YAML.
func (o *output) write(w io.Writer, v any) error {
	text, err := o.Encode(v, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
