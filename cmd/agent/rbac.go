package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/rbac"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

type rbacFlags struct {
	agent.Options

	name, serviceAccount string
	output               output
	discover             bool
}

func newRBACCommand(stdout, stderr io.Writer) *cobra.Command {
	f := rbacFlags{Options: agent.Options{Build: build()}}
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the smallest ClusterRole and Roles for a configuration",
		Long: "Print the smallest roles for a configuration (without --config: the default one), with the bindings for the agent's\n" +
			"ServiceAccount. They permit:\n\n" +
			"- list and watch of the captured resources;\n" +
			"- list and watch of CustomResourceDefinitions and APIServices, if a rule can take resources that they define;\n" +
			"- list and watch of Nodes, for the central agent beside those on nodes;\n" +
			"- get of the namespace kube-system, whose uid identifies the cluster;\n" +
			"- get, update and create of the ConfigMap with the checkpoint, if it is in one;\n" +
			"- get, update and create of the Lease, with leader election.\n\n" +
			"If a rule names its namespaces literally, each gets a Role; globs and exclusions need a ClusterRole. A wildcard\n" +
			"stays one, unless the command asks a cluster for its resources (--discover). Comments mark places where RBAC\n" +
			"cannot be as narrow as the configuration.\n\n" +
			"In mode node, let the name of the ConfigMap end with ${NODE_NAME}, and set NODE_NAME to any name for this\n" +
			"command. It also prints the namespace of the checkpoints, and an admission policy that lets each agent\n" +
			"write only the ConfigMap of its node. The role permits all ConfigMaps of that namespace.\n\n" +
			"The ServiceAccount and the namespaces must exist. Roles that an earlier configuration needed in other\n" +
			"namespaces are not removed.\n\n" +
			"The output is a list of manifests for kubectl apply, so --output is only yaml or json: a table of roles could not\n" +
			"be applied.",
		Example: "  kubecdc rbac --config kubecdc.yaml | kubectl apply -f -\n" +
			"  kubecdc rbac --config kubecdc.yaml --discover          # each resource that the cluster serves, by name\n" +
			"  kubecdc rbac --service-account monitoring/cdc -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.discover = f.discover || cmd.Flags().Changed("kubeconfig") || cmd.Flags().Changed("context")
			return printRBAC(cmd.Context(), &f, cmd.InOrStdin(), stdout, stderr)
		},
	}
	cmd.Flags().
		StringVar(&f.Config, "config", "",
			"configuration `file`, - for standard input; without one: the default configuration")
	addOverrides(cmd, &f.Overrides)
	cmd.Flags().
		StringVar(&f.serviceAccount, "service-account", "kubecdc/kubecdc",
			"the ServiceAccount to bind, as `NAMESPACE/NAME`")
	cmd.Flags().StringVar(&f.name, "name", "kubecdc", "`name` of the roles and bindings")
	cmd.Flags().
		BoolVar(&f.discover, "discover", false, "list the resources that the cluster serves instead of wildcards")
	cmd.Flags().
		StringVar(&f.Kubeconfig, "kubeconfig", "",
			"kubeconfig `file`, implies --discover; default: $KUBECONFIG, ~/.kube/config, or in a pod its service account")
	cmd.Flags().StringVar(&f.Context, "context", "", "`name` of the kubeconfig's context, implies --discover")
	f.output.add(cmd, manifestFormats())
	return cmd
}

func printRBAC(ctx context.Context, f *rbacFlags, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := rbac.NewOptions(f.name, f.serviceAccount)
	if err != nil {
		return usageError{err}
	}
	o.Node = os.Getenv(agent.NodeNameEnv)
	o.Foreign = func(p config.ResourcePattern) bool { return discovery.TakesExtensions(p) }
	data, source := []byte(config.Empty), "the default configuration"
	if f.Config != "" {
		data, source, err = agent.ReadConfig(stdin, f.Config)
		if err != nil {
			return err
		}
	}
	set, err := f.Overrides.Parse()
	if err != nil {
		return err
	}
	file, err := config.ParseOverridden(data, source, set)
	if err != nil {
		return err
	}
	cfg := file.Config
	header := fmt.Sprintf(
		"The permissions that the ServiceAccount %s needs for kubecdc to capture what %s selects, and no others. Discovery needs no "+
			"rule: ClusterRole system:discovery permits it to every authenticated user.", f.serviceAccount, source)
	var served *rbac.Discovery
	if f.discover {
		var host string
		served, host, err = f.DiscoverResources(ctx, cfg)
		if err != nil {
			return err
		}
		header += fmt.Sprintf(
			" Wildcards are replaced by the resources that %s serves now: print this again after new resources are defined.",
			host)
	}
	m := rbac.New(cfg, o, served)
	m.Header = []string{header}
	for _, note := range m.Notes {
		fmt.Fprintf(stderr, "kubecdc: %s\n", note)
	}
	if f.output.Name == printer.JSON {
		return m.WriteJSON(stdout)
	}
	return m.WriteYAML(stdout)
}
