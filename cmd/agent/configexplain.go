package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/configs"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/explain"
)

func newConfigExplainCommand() *cobra.Command {
	var file string
	var out output
	var o agent.Overrides
	cmd := &cobra.Command{
		Use:   "explain RESOURCE",
		Short: "Print which rules take a resource, and how its changes are sent",
		Long: "Print which rules of a configuration (without --config: of the default one) take objects of a resource, in their order,\n" +
			"or why none does. Print also how the changes of these objects are sent. RESOURCE is written as for kubectl: pods,\n" +
			"deploy, deployments.apps, widgets.example.com. The command contacts no cluster: the resource may not exist there.",
		Example: "  kubecdc config explain deployments.apps --config kubecdc.yaml\n" +
			"  kubecdc config explain secrets\n" +
			"  kubecdc config explain widgets.example.com -o json | jq .captured",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("config explain: name one resource, such as deployments.apps")}
			}
			return nil
		},
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := config.FindResource(args[0])
			if err != nil {
				return usageError{fmt.Errorf("config explain: %w", err)}
			}
			data, name := configs.Default, "default configuration"
			if file != "" {
				data, name, err = agent.ReadConfig(cmd.InOrStdin(), file)
				if err != nil {
					return err
				}
			}
			set, err := o.Parse()
			if err != nil {
				return err
			}
			f, err := config.ParseOverridden(data, name, set, agent.CheckRules)
			if err != nil {
				return err
			}
			e, err := explain.Resource(f, r)
			switch {
			case err != nil:
				return err
			case out.IsStructured():
				return out.write(cmd.OutOrStdout(), e)
			}
			e.Write(cmd.OutOrStdout())
			return nil
		},
	}
	cmd.Flags().
		StringVar(&file, "config", "",
			"configuration `file`, - for standard input; without one: the default configuration")
	addOverrides(cmd, &o)
	out.add(cmd, reportFormats())
	return cmd
}
