package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// The formats of --output. Reports have the first four. Commands that show objects have all but changesFormat, which commands have
// that show changes, as their default. Manifests are YAML or JSON.
const (
	tableFormat    = "table"
	wideFormat     = "wide"
	jsonFormat     = "json"
	yamlFormat     = "yaml"
	nameFormat     = "name"
	changesFormat  = "diff"
	jsonPathFormat = "jsonpath=" // followed by a template
)

func manifestFormats() []string { return []string{yamlFormat, jsonFormat} }
func reportFormats() []string   { return []string{tableFormat, wideFormat, jsonFormat, yamlFormat} }
func objectFormats() []string   { return append(reportFormats(), nameFormat, jsonPathFormat) }
func changeFormats() []string   { return append([]string{changesFormat}, objectFormats()...) }

// output is the value of --output.
type output struct {
	format   string
	formats  []string
	template *jsonpath.JSONPath // of jsonPathFormat; nil for other formats
	variable bool               // Set by the environment, for all commands: flags of the command line override it.
}

// add adds the flag. The first format is the default.
func (o *output) add(cmd *cobra.Command, formats []string) {
	o.format, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", "`format`: "+listFormats(formats))
	completeWords(cmd, "output", formats...)
}

func listFormats(formats []string) string {
	return strings.ReplaceAll(strings.Join(formats, ", "), jsonPathFormat, jsonPathFormat+"TEMPLATE")
}

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	if template, ok := strings.CutPrefix(text, jsonPathFormat); ok && slices.Contains(o.formats, jsonPathFormat) {
		parsed := jsonpath.New("output").AllowMissingKeys(true)
		if err := parsed.Parse(template); err != nil {
			return flagError(fmt.Sprintf("--output %s: %v; want a template as for kubectl: jsonpath='{.metadata.name}'", text, err))
		}
		o.format, o.template = jsonPathFormat, parsed
		return nil
	}
	switch {
	case slices.Contains(o.formats, text) && text != jsonPathFormat:
		o.format, o.template = text, nil
		return nil
	case text == "text" && slices.Contains(o.formats, tableFormat):
		return flagError("--output: text is renamed to table")
	}
	return flagError(fmt.Sprintf("--output: must be one of %s, got %q", listFormats(o.formats), text))
}

// setVariable sets the format that the environment has for all commands. A format that only other commands have is ignored.
func (o *output) setVariable(text string) error {
	o.variable = true
	name := text
	if strings.HasPrefix(text, jsonPathFormat) {
		name = jsonPathFormat
	}
	if slices.Contains(changeFormats(), name) && !slices.Contains(o.formats, name) {
		return nil
	}
	return o.Set(text)
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (*output) Type() string { return "string" }

// wide reports whether all columns and fields are printed.
func (o *output) wide() bool { return o.format == wideFormat }

// structured reports whether the output is for programs: json or yaml.
func (o *output) structured() bool { return o.format == jsonFormat || o.format == yamlFormat }

// write writes a value as JSON or YAML, with the same keys.
func (o *output) write(w io.Writer, v any) error {
	if o.format == jsonFormat {
		return printJSON(w, v)
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// execute returns the text that the template makes of a value's JSON form.
func (o *output) execute(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var data any
	if err := utiljson.Unmarshal(raw, &data); err != nil { // Integers stay integers.
		return nil, err
	}
	var b bytes.Buffer
	if err := o.template.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("--output jsonpath: %w", err)
	}
	return b.Bytes(), nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
