package main

import (
	"fmt"
	"io"
	"os"
	_ "time/tzdata" // CronJobs with a time zone, as in the upstream commands.

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info on /metrics
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// exitOnEOF names the environment variable that ties the life of the process to its standard input.
const exitOnEOF = "KUBECDC_EXIT_ON_STDIN_EOF"

func main() {
	os.Exit(run(os.Args))
}

func run(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cluster etcd|kube-apiserver|kube-controller-manager|kubectl [flags]")
		return 2
	}
	if os.Getenv(exitOnEOF) != "" {
		go exitWithParent(os.Stdin)
	}

	// The components read os.Args themselves, so it must look like the command line of a separate
	// binary.
	os.Args = args[1:]
	switch args[1] {
	case "etcd":
		etcdmain.Main(os.Args)
		return 0
	case "kube-apiserver":
		return component(apiserver.NewAPIServerCommand)
	case "kube-controller-manager":
		return component(controllermanager.NewControllerManagerCommand)
	case "kubectl":
		return kubectl()
	default:
		fmt.Fprintf(os.Stderr, "cluster: unknown component %q\n", args[1])
		return 2
	}
}

// component takes the constructor, not the command: both constructors install the process-wide
// signal handler, which may be done only once, so only the chosen one may run.
func component(newCommand func() *cobra.Command) int {
	return cli.Run(newCommand())
}

// kubectl prints its errors itself, as the upstream command does.
func kubectl() int {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // ends the process, with the exit code for err
	}
	return 0
}

// exitWithParent ends the process when stdin ends. The starter holds the other end of the pipe and
// never writes to it, so the kernel closes it when the starter ends for any reason. There is no
// orderly shutdown, because nobody needs the data any more. It is the one goroutine here without an
// owner, because it has to outlive every component.
func exitWithParent(stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	fmt.Fprintln(os.Stderr, "cluster: the parent process is gone")
	os.Exit(1)
}
