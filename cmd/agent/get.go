package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent/withheld"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

type getFlags struct {
	askFlags
	at       string
	forApply bool

	toNamespace string
}

func newGetCommand(stdout, stderr io.Writer) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:        "get {RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME... | all}",
		Short:      "Show the objects that existed at a moment, or restore them",
		SuggestFor: []string{"restore", "undelete", "recover"},
		Long: `Show the objects that existed at a moment, as the record on a bus or in a file has them.

` + momentHelp + `

` + resourceHelp + `

The table shows how long before the moment each object was created and last changed, and by whom. >5m: a snapshot found
it 5m before, so that it was changed earlier. If all objects are of one resource of Kubernetes, the table also has the
columns of kubectl, and -o wide all of them. -o json prints a List, as kubectl does, with the certainty in its field
kubecdc. -o yaml prints a document for each object. -o jsonpath=TEMPLATE is that of kubectl: of the object, if one is
named, else of the List.

--for-apply prints YAML without what the server fills in, ready for 'kubectl apply -f -'. It leaves out objects with
redacted values, which must not be applied, and objects that the control plane or the controller of another one makes.
It removes owner references, which hold uids of the past, and cluster IPs, unless the record shows that a user set them.
Volumes and claims bind to each other again; standard error says what to do if the old volume still exists. Namespaces
and CRDs come first. Events are left out. Standard error says what was left out. An apply does not remove what was added
since: see 'kubectl replace'.

--to-namespace restores objects of one namespace into another one. Volumes, cluster IPs and node ports stay with the old
one. Standard error says which objects still refer to it, such as the subjects of a RoleBinding.

Except for Secrets, the record does not show where the agent removed a value (strip, or redact without a hash): to apply
such an object may delete the value in the cluster. With --config, the agent's configuration at the moment, objects that
may lack such a value are left out too.

` + certaintyHelp,
		Example: `  kubecdc get deploy,cm -n shop --at 14:05
  kubecdc get pods -l app=web --at 2h -o wide
  kubecdc get deploy/web -n shop --at 'yesterday 14:05' --for-apply | kubectl apply -f -
  kubecdc get deploy,cm -n shop --at 14:05 --for-apply --to-namespace shop-restored > restored.yaml
  kubecdc get secrets -A --at rv:48211 -o json --exact
  kubecdc get all --at 2026-11-20T15:00:00Z --bus file:events.jsonl -o name`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError{errors.New("get: name resources (pods, deploy/web, deployments.apps), or all")}
			case f.toNamespace != "" && !f.forApply:
				return usageError{errors.New("--to-namespace requires --for-apply")}
			case f.forApply && !f.output.variable && f.output.Name != printer.Table && f.output.Name != printer.YAML:
				return usageError{fmt.Errorf("--for-apply prints YAML, got -o %s", f.output.Name)}
			}
			at, err := parseMoment("at", f.at, stderr)
			if err != nil {
				return err
			}
			var agent *answer.Agent
			if f.forApply && f.bus.Config != "" {
				cfg, err := f.agentConfig()
				if err != nil {
					return err
				}
				agent = withheld.By(cfg)
			}
			return f.answer(cmd.Context(), args, stdout, stderr, func(q *answers.Question) error {
				if f.forApply {
					return q.GetForApply(cmd.Context(), at, agent, f.toNamespace)
				}
				return q.Get(cmd.Context(), at)
			})
		},
	}
	f.addSelector(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.at, "at", "now", "the `moment`")
	completeWords(cmd, "at", "now", "10m", "1h", "24h")
	f.add(cmd, objectFormats())
	fl.BoolVar(&f.forApply, "for-apply", false, "print YAML without what the server fills in, for kubectl apply")
	fl.StringVar(&f.toNamespace, "to-namespace", "", "with --for-apply, restore the objects into this `namespace`")
	return cmd
}
