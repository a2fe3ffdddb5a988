package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
)

// addOverrides adds the flag that overrides keys of the configuration file.
func addOverrides(cmd *cobra.Command, o *agent.Overrides) {
	cmd.Flags().StringArrayVar(&o.Set, "set", nil, "override a key of the configuration, as `KEY=VALUE`; may be repeated")
	completeKeys(cmd, "set")
}

func addLogLevel(cmd *cobra.Command, o *agent.Overrides) {
	levels := config.LogLevel("").Values()
	cmd.Flags().StringVar(&o.LogLevel, "log-level", "", "lowest `level` that is logged: "+strings.Join(levels, ", ")+" (default: log.level of the file, else info)")
	completeWords(cmd, "log-level", levels...)
}

// completeKeys completes a flag with the keys of the configuration.
func completeKeys(cmd *cobra.Command, flag string) {
	keys := make([]cobra.Completion, 0, len(config.Keys()))
	for _, key := range config.Keys() {
		if !strings.Contains(key, "[]") {
			keys = append(keys, key+"=")
		}
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)) // fails for flags that do not exist
}
