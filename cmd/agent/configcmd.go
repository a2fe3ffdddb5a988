package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/configs"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/explain"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// errReported makes a command exit with exitUsage after it has printed the error itself.
var errReported = errors.New("reported")

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, print and explain configurations",
		Long: "A YAML file configures the objects that the agent captures, and the bus. These commands need no cluster.\n\n" +
			"To start with one: kubecdc config default > kubecdc.yaml",
		Args: oneOfItsCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigDefaultCommand(), newConfigSchemaCommand(),
		newConfigExplainCommand())
	return cmd
}

func newConfigDefaultCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "default",
		Short:   "Print the default configuration with every key explained",
		Example: "  kubecdc config default > kubecdc.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(configs.Default)
			return err
		},
	}
}

func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a configuration, for editors",
		Long: "Print the JSON Schema (2020-12) of a configuration. Editors with a YAML language server complete and check a\n" +
			"file whose first line names it, as that of 'kubecdc config default' does:\n\n" +
			"  # yaml-language-server: $schema=kubecdc.schema.json",
		Example: "  kubecdc config schema > kubecdc.schema.json   # beside kubecdc.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(configs.Schema)
			return err
		},
	}
}

func newConfigCheckCommand() *cobra.Command {
	var out output
	var o agent.Overrides
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Report all errors of configurations, or summarize them",
		Long: "Read configurations as 'kubecdc run' would. Print all errors with line and column, or a summary of each valid file.\n" +
			"FILE is - for standard input.\n\n" +
			"The exit code is 0 if all are valid, otherwise 2.",
		Example: "  kubecdc config check kubecdc.yaml\n" +
			"  kubectl get configmap kubecdc -o jsonpath='{.data.kubecdc\\.yaml}' | kubecdc config check -\n" +
			"  kubecdc config check -o json *.yaml | jq -r '.[].errors[]?.message'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("config check: name a file, or - for standard input")}
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"yaml", "yml", "json"},
			cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := o.Parse()
			if err != nil {
				return err
			}
			return checkConfigs(cmd.InOrStdin(), cmd.OutOrStdout(), args, set, &out)
		},
	}
	addOverrides(cmd, &o)
	out.add(cmd, reportFormats())
	return cmd
}

// printInvalid prints all errors of configurations.
func printInvalid(out *terminal.Output, errs yamldoc.Errors) {
	paint := func(s terminal.Style) func(string) string {
		return func(text string) string { return out.Paint(s, text) }
	}
	for _, e := range errs {
		fmt.Fprintln(out, e.Styled(paint(terminal.Bold), paint(terminal.Red)))
	}
}

// checked is the result of config check for one file.
type checked struct {
	File    string           `json:"file"`
	Valid   bool             `json:"valid"`
	Errors  []*yamldoc.Error `json:"errors,omitempty"`
	Doubts  []*yamldoc.Error `json:"doubts,omitempty"`
	Summary *explain.Summary `json:"summary,omitempty"`
}

// checkConfigs prints the results of valid files to stdout, and returns the errors of the others.
func checkConfigs(stdin io.Reader, stdout io.Writer, files []string, set []yamldoc.Override, out *output) error {
	var all yamldoc.Errors
	results := make([]checked, 0, len(files))
	for _, file := range files {
		data, name, err := agent.ReadConfig(stdin, file)
		result := checked{File: name}
		var f *config.File
		if err == nil {
			f, err = config.ParseOverridden(data, name, set, agent.CheckRules)
		}
		var invalid yamldoc.Errors
		var unread *os.PathError
		switch {
		case errors.As(err, &unread):
			result.Errors = yamldoc.Errors{{File: name, Message: "cannot be read: " + unread.Err.Error()}}
			all = append(all, result.Errors...)
		case errors.As(err, &invalid):
			result.Errors = invalid
			all = append(all, invalid...)
		case err != nil:
			return err
		default:
			result.Valid = true
			result.Doubts = f.Doubts(explain.Doubts)
			result.Summary = explain.Summarize(f)
			if !out.IsStructured() {
				result.write(stdout)
			}
		}
		results = append(results, result)
	}
	if out.IsStructured() {
		if err := out.write(stdout, results); err != nil {
			return err
		}
		if len(all) > 0 {
			return errReported
		}
	}
	if len(all) > 0 {
		return all
	}
	return nil
}

func (c *checked) write(w io.Writer) {
	fmt.Fprintf(w, "%s: valid\n", c.File)
	c.Summary.Write(w)
	for _, d := range c.Doubts {
		fmt.Fprintf(w, "Note: %v\n", d)
	}
}
