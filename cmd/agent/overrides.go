package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
)

// addOverrides adds the flag that overrides keys of the configuration file.
func addOverrides(cmd *cobra.Command, o *agent.Overrides) {
	cmd.Flags().
		StringArrayVar(&o.Set, "set", nil, "override a key of the configuration, as `KEY=VALUE`; may be repeated")
	completeKeys(cmd, "set")
}

func addLogLevel(cmd *cobra.Command, o *agent.Overrides) {
	levels := config.LogLevel("").Values()
	cmd.Flags().
		StringVar(&o.LogLevel, "log-level", "",
			"lowest `level` that is logged: "+strings.Join(levels, ", ")+" (default: log.level of the file, else info)")
	completeWords(cmd, "log-level", levels...)
}

// completeKeys completes a flag with the keys of the configuration. They are listed when they are
// asked for: that takes longer than the start of a command.
func completeKeys(cmd *cobra.Command, flag string) {
	complete := func(*cobra.Command, []string, string) (keys []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, key := range config.Keys() {
			if !strings.Contains(key, "[]") {
				keys = append(keys, key+"=")
			}
		}
		return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, complete) // fails for flags that do not exist
}
