package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/duration"
)

func newRunCommand(stdout, stderr io.Writer) *cobra.Command {
	o := agent.Options{Build: build(), Grace: 20 * time.Second}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent",
		Long: `Run the agent: capture the changes of a cluster and publish them.

The file of --config selects the objects and the bus: NATS JetStream, Kafka, an
HTTP endpoint or standard output. Without it, the agent captures all resources
but Events and Leases ('kubecdc config default'). --bus overrides the bus in the
file, and keeps its settings for a bus of the same kind. Relays of the file run
beside the agent.

--set overrides a key of the file, or of the defaults: --set event.before=false,
--set 'watch[0].namespaces=[shop, bank]'. A value that begins with [ or { is YAML. From
the lowest to the highest precedence: defaults, file, environment variables of flags,
flags. --bus overrides a bus that --set names.

With neither --config nor --bus, the agent runs a JetStream in its own process: a NATS
server on 127.0.0.1:4222 or the next free port, which 'kubecdc tail' finds. It keeps
records for 7 days in --data-dir, by default ~/.local/share/kubecdc/<uid of the cluster>
(or below $XDG_DATA_HOME). The next run resumes there. To delete the records, delete the
directory. The server requires a token that only this user and root can read. Each start
makes another one. The file bus.json in the directory has it, with the URL:
'nats sub --context DIR/bus.json'. Other users must not own the directory, or be able to
write to it.

The agent applies a changed file within seconds, and on SIGHUP at once. A change
of watch, strip, noise, redaction or log.level needs no restart, and loses and
repeats nothing of the resources that stay. A file that is wrong, or that changes
any other key, is rejected: the previous one stays in force, and the log, 'kubecdc
status' and a metric report it.

The agent accepts commands ('kubecdc snapshot', 'kubecdc profile') at a Unix socket
that only this user and root can open: $` + admin.SocketVariable + `, or by default agent.sock,
or the next free name, in $XDG_RUNTIME_DIR/kubecdc, or /tmp/kubecdc-<uid>.

SIGTERM and Ctrl-C end the watches and drain the queue within --grace; a second
one ends the process at once. Acknowledged records are kept in any case.

After a restart or a crash, the agent resumes where the acknowledgements end. It
sends the changes in between as they happened, for as long as the API server has
that history. The checkpoint stores its position ('kubecdc checkpoint show'), beside
the records of the embedded JetStream. Otherwise it is in the ConfigMap
kubecdc-checkpoint for an agent in a Pod, and elsewhere in a file for each cluster
and bus below ~/.local/share/kubecdc/checkpoints. The configuration may name another
place.`,
		Example: `  kubecdc run                                  # the current context, into a JetStream of its own
  kubecdc run --context prod --bus nats://nats.example:4222
  kubecdc run --bus kafka://kafka-0:9092,kafka-1:9092/kubecdc
  kubecdc run --bus stdout: | jq .subject
  kubecdc run --config kubecdc.yaml
  kubecdc run --config kubecdc.yaml --set cluster=staging --log-level debug`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return agent.Run(cmd.Context(), &o, stdout, stderr) },
	}
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration `file`")
	addOverrides(cmd, &o.Overrides)
	addLogLevel(cmd, &o.Overrides)
	cmd.Flags().
		StringVar(&o.Kubeconfig, "kubeconfig", "",
			"kubeconfig `file`; default: $KUBECONFIG, ~/.kube/config, or in a pod its service account")
	cmd.Flags().StringVar(&o.Context, "context", "", "`name` of the kubeconfig's context")
	cmd.Flags().
		StringVar(&o.Bus, "bus", "", "`URL` of the bus instead of the configured one: "+catalog.URLs(catalog.Buses()))
	cmd.Flags().
		StringVar(&o.DataDir, "data-dir", "", "`directory` of the embedded JetStream, without --config and --bus")
	cmd.Flags().Var((*duration.Flag)(&o.Grace), "grace", "time limit of a shutdown for draining the queue")
	return cmd
}
