package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
)

// newCompletionCommand is cobra's completion command, reduced to the information that a first-time
// user needs.
func newCompletionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion {" + strings.Join(shells, "|") + "}",
		Short: "Print a completion script for a shell",
		Long: "Print a script that completes commands, flags and values of kubecdc in a shell.\n\n" +
			"bash needs the package bash-completion; zsh needs compinit (autoload -U compinit; compinit).",
		Example: "  source <(kubecdc completion bash)                                      # this session\n" +
			"  kubecdc completion bash > /etc/bash_completion.d/kubecdc               # every session\n" +
			"  kubecdc completion zsh > \"${fpath[1]}/_kubecdc\"\n" +
			"  kubecdc completion fish > ~/.config/fish/completions/kubecdc.fish\n" +
			"  kubecdc completion powershell | Out-String | Invoke-Expression",
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("completion: name one shell of %s", strings.Join(shells, ", "))}
			}
			return nil
		},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return usageError{
				fmt.Errorf("completion: no script for %q; shells: %s", args[0], strings.Join(shells, ", ")),
			}
		},
	}
}

// setCompletion configures the completion of all commands. Only arguments that are files complete
// to files.
func setCompletion(root *cobra.Command) {
	root.CompletionOptions.DisableDefaultCmd = true // newCompletionCommand replaces it
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	completeFlags(root)
}

// completeFlags sets the completion of flags that have the same meaning in cmd and in the commands
// below it.
func completeFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"config":     cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt),
		"kubeconfig": cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"context":    completeContexts,
		"data-dir":   cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // fails if the command has its own completion
		}
	}
	for _, c := range cmd.Commands() {
		completeFlags(c)
	}
}

// completeContexts completes the contexts of the kubeconfig.
func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.Warner = func(error) {} // ignore missing files
	if f := cmd.Flags().Lookup("kubeconfig"); f != nil {
		rules.ExplicitPath = f.Value.String()
	}
	kubeconfig, err := rules.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(kubeconfig.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completeResources completes the built-in resources of Kubernetes in the first argument, a list
// separated by commas. It does not query the cluster, because a completion must be immediate.
func completeResources(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || strings.Contains(typed, "/") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var out []cobra.Completion
	for _, name := range slices.Sorted(slices.Values(kinds.Plurals())) {
		if all := before + name; strings.HasPrefix(all, typed) {
			out = append(out, all)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
