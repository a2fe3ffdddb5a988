package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// overrides are flags that override keys of the configuration file.
type overrides struct {
	set      []string // KEY=VALUE
	logLevel string
}

func (o *overrides) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.set, "set", nil, "override a key of the configuration, as `KEY=VALUE`; may be repeated")
	completeKeys(cmd, "set")
}

func (o *overrides) addLogLevel(cmd *cobra.Command) {
	levels := config.LogLevel("").Values()
	cmd.Flags().StringVar(&o.logLevel, "log-level", "", "lowest `level` that is logged: "+strings.Join(levels, ", ")+" (default: log.level of the file, else info)")
	completeWords(cmd, "log-level", levels...)
}

// parse returns the overrides, that of --log-level last: it counts more than --set log.level.
func (o *overrides) parse() ([]yamldoc.Override, error) {
	var parsed []yamldoc.Override
	for _, text := range o.set {
		p, err := yamldoc.ParseOverride("--set", text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--set: %w", err)} // without the text, which may have a secret
		}
		parsed = append(parsed, p)
	}
	if o.logLevel != "" {
		parsed = append(parsed, yamldoc.Override{Source: "--log-level", Path: "log.level", Value: o.logLevel})
	}
	return parsed, nil
}

// touches reports whether an override sets a key or a part of it.
func (o *overrides) touches(key string) bool {
	for _, text := range o.set {
		rest, ok := strings.CutPrefix(text, key)
		if ok && rest != "" && strings.ContainsRune(".[=", rune(rest[0])) {
			return true
		}
	}
	return false
}

// completeKeys makes a flag's completion offer the keys of the configuration.
func completeKeys(cmd *cobra.Command, flag string) {
	keys := make([]cobra.Completion, 0, len(config.Keys()))
	for _, key := range config.Keys() {
		if !strings.Contains(key, "[]") {
			keys = append(keys, key+"=")
		}
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)) // fails for flags that do not exist
}
