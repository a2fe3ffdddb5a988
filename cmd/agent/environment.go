package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variableOf returns the environment variable that sets a flag: KUBECDC_DATA_DIR for --data-dir.
func variableOf(flag string) string {
	return "KUBECDC_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hasVariable reports whether a variable sets the flag. Not for --agent: agent.FindServer applies
// its variables in its own order.
func hasVariable(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "agent" && !f.Hidden }

// documentVariables adds the name of its variable to the usage of each flag.
func documentVariables(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if hasVariable(f) {
			f.Usage += " [$" + variableOf(f.Name) + "]"
		}
	})
	for _, c := range cmd.Commands() {
		documentVariables(c)
	}
}

// readVariables sets flags of cmd from their variables, unless the command line sets them. An empty
// variable counts as unset.
func readVariables(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := variableOf(f.Name)
		text := os.Getenv(name)
		if err != nil || f.Changed || text == "" || !hasVariable(f) {
			return
		}
		values := []string{text}
		if f.Value.Type() == "stringArray" {
			values = strings.Split(strings.TrimSuffix(text, "\n"), "\n") // values may contain commas
		}
		for _, v := range values {
			set := f.Value.Set
			if o, ok := f.Value.(*output); ok {
				set = o.setVariable
			}
			wrong := set(v)
			if errors.As(wrong, new(flagError)) {
				err = usageError{fmt.Errorf("environment variable %s: %w", name, wrong)}
				return
			}
			if wrong != nil {
				err = usageError{
					fmt.Errorf("environment variable %s: invalid value %q for --%s: %w", name, v, f.Name, wrong),
				}
				return
			}
		}
		f.Changed = true
	})
	return err
}

// renamedFlag is the value of a flag that was renamed. Setting it is an error.
type renamedFlag struct{ from, to string }

func (r renamedFlag) Set(string) error { return flagError("--" + r.from + ": renamed to --" + r.to) }
func (renamedFlag) String() string     { return "" }
func (renamedFlag) Type() string       { return "bool" }

// flagError is an error of a flag that already names the flag and the value.
type flagError string

func (e flagError) Error() string { return string(e) }

// renameFlag makes the former name of a flag fail with an error that has the new name.
func renameFlag(fl *pflag.FlagSet, from, to string) {
	f := fl.VarPF(renamedFlag{from, to}, from, "", "renamed")
	f.NoOptDefVal, f.Hidden = "true", true
}
