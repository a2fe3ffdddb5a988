package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/configs"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func newConfigExplainCommand() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use:   "explain RESOURCE",
		Short: "Say which rule takes a resource, and what becomes of its changes",
		Long: "Say which rule of a configuration (without --config: of the default one) takes a resource, or why none does, and\n" +
			"what becomes of its changes. RESOURCE is written as for kubectl: pods, deploy, deployments.apps,\n" +
			"widgets.example.com. No cluster is asked: whether it serves the resource is not known here.",
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
			if err := validateOutput(output); err != nil {
				return err
			}
			r, err := config.FindResource(args[0])
			if err != nil {
				return usageError{fmt.Errorf("config explain: %w", err)}
			}
			data, name := configs.Default, "default configuration"
			if file != "" {
				if data, name, err = readConfig(cmd.InOrStdin(), file); err != nil {
					return err
				}
			}
			f, err := config.ParseFile(data, name, checkTemplates)
			if err != nil {
				return err
			}
			return explain(f, r, cmd.OutOrStdout(), output == "json")
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `file`, - for standard input; without one: the default configuration")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	completeWords(cmd, "output", "text", "json")
	return cmd
}

// explanation is what becomes of the changes of one resource.
type explanation struct {
	Resource string `json:"resource"`
	Captured bool   `json:"captured"`
	Why      string `json:"why"`
	File     string `json:"file"`
	Rule     *int   `json:"rule,omitempty"` // index in watch
	Line     int    `json:"line,omitempty"`

	*fate
}

// fate is an explanation of what is captured.
type fate struct {
	Part          string   `json:"part,omitempty"`       // what the mode takes of it, in words
	Namespaces    []string `json:"namespaces,omitempty"` // none: all
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
	Operations    []string `json:"operations"`
	Stripped      []string `json:"stripped"`
	Redacted      []string `json:"redacted"`
	Bus           string   `json:"bus"`
	Subject       string   `json:"subject,omitempty"` // template
	Topic         string   `json:"topic,omitempty"`   // template
	Example       string   `json:"example,omitempty"`
	StreamEvents  string   `json:"streamEvents,omitempty"`

	clusterScoped bool
}

func everyNamespace(clusterScoped bool) string {
	if clusterScoped {
		return "none: its objects are cluster-scoped"
	}
	return "all"
}

func explain(f *config.File, r config.Resource, stdout io.Writer, asJSON bool) error {
	v := f.Explain(r)
	e := explanation{Resource: r.String(), Captured: v.Rule >= 0, File: f.Name}
	index := v.Rule
	switch {
	case v.Rule >= 0 && f.Part(r.Group, r.Name, "").None:
		e.Captured, e.Why = false, "mode "+string(f.Mode)+" leaves it out: "+partInWords(f.Config, r.Group, r.Name)
	case v.Rule >= 0:
		e.Why = fmt.Sprintf("watch[%d] names it as %s", v.Rule, f.Watch[v.Rule].Resources[v.Pattern])
		var err error
		if e.fate, err = fateOf(f.Config, &f.Watch[v.Rule], r); err != nil {
			return err
		}
	case v.Excluding < 0:
		e.Why = "no rule names it; add it to the resources of one"
	case v.Except >= 0:
		e.Why = fmt.Sprintf("watch[%d] excepts it: %s", v.Excluding, f.Watch[v.Excluding].Except[v.Except])
	default:
		e.Why = fmt.Sprintf("watch[%d] takes some namespaces only, and %s have none; give them a rule of their own", v.Excluding, r)
	}
	if index < 0 {
		index = v.Excluding
	}
	if index >= 0 {
		e.Rule, e.Line = &index, f.Line(fmt.Sprintf("watch[%d]", index))
	}
	if asJSON {
		return printJSON(stdout, e)
	}
	e.write(stdout)
	return nil
}

func fateOf(c *config.Config, rule *config.Rule, r config.Resource) (*fate, error) {
	x := &fate{
		Part:       partInWords(c, r.Group, r.Name),
		Namespaces: namespaces(rule.Namespaces), LabelSelector: rule.LabelSelector, FieldSelector: rule.FieldSelector,
		Operations: []string{"created", "updated", "deleted"}, Stripped: append([]string{}, c.Strip...), Redacted: []string{},
		Bus: summarizeBus(&c.Bus).String(), clusterScoped: r.ClusterScoped,
	}
	if c.Snapshot.Mode != config.SnapshotNever {
		x.Operations = append(x.Operations, "read")
	}
	if rule.LabelSelector != "" || rule.FieldSelector != "" || x.Part != "" {
		x.Operations = append(x.Operations, "entered", "left")
	}
	if r.Group == "" && r.Name == "secrets" {
		// Whatever is configured; see Set in internal/informers.
		x.Redacted = []string{"data", "stringData", `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`}
	}
	var names func(d *object.Delta) string // of subject or topic
	cluster := orText(c.Cluster, "CLUSTER-UID")
	switch b := &c.Bus; {
	case b.NATS != nil:
		subjects, err := publish.NewSubjects(b.NATS.Subject, cluster)
		if err != nil {
			return nil, err
		}
		x.Subject = b.NATS.Subject
		names = func(d *object.Delta) string { return string(subjects.Append(nil, d)) }
	case b.Kafka != nil:
		topics, err := publish.NewTopics(b.Kafka.Topic, cluster)
		if err != nil {
			return nil, err
		}
		x.Topic = b.Kafka.Topic
		names = func(d *object.Delta) string { return string(topics.Append(nil, d)) }
	default:
		return x, nil
	}
	resource := &object.Resource{Group: r.Group, Name: r.Name}
	namespace := exampleNamespace(rule)
	if r.ClusterScoped {
		namespace = ""
	}
	ref := object.NewRef(resource, namespace, "example", "")
	x.Example = names(&object.Delta{Ref: ref})
	if x.Subject != "" {
		x.StreamEvents = names(&object.Delta{Stream: &object.StreamEvent{Resource: resource}})
	} else {
		x.StreamEvents = "every partition of its topics"
	}
	return x, nil
}

// exampleNamespace is one that the rule takes, or a word in its place.
func exampleNamespace(rule *config.Rule) string {
	if names, ok := rule.Namespaces.Literal(); ok {
		return names[0]
	}
	if rule.Namespaces.Match("default") {
		return "default"
	}
	return "NAMESPACE"
}

func (e *explanation) write(w io.Writer) {
	what := "not captured"
	if e.Captured {
		what = "captured"
	}
	place := ""
	if e.Line > 0 {
		place = fmt.Sprintf(" (%s:%d)", e.File, e.Line)
	}
	fmt.Fprintf(w, "%s: %s, %s%s\n", e.Resource, what, e.Why, place)
	if e.fate == nil {
		return
	}
	table := newFacts(w)
	if e.Part != "" {
		table.add("part", e.Part)
	}
	table.add("namespaces", orText(strings.Join(e.Namespaces, ", "), everyNamespace(e.clusterScoped)))
	if e.LabelSelector != "" {
		table.add("labels", e.LabelSelector)
	}
	if e.FieldSelector != "" {
		table.add("fields", e.FieldSelector)
	}
	table.add("operations", strings.Join(e.Operations, ", "))
	table.add("stripped", orText(strings.Join(e.Stripped, ", "), "nothing"))
	table.add("redacted", orText(strings.Join(e.Redacted, ", "), "nothing"))
	table.add("to", e.Bus)
	if e.Example != "" {
		if e.Subject != "" {
			table.add("subject", e.Subject)
		} else {
			table.add("topic", e.Topic)
		}
		table.add("for example", e.Example)
		table.add("stream events", e.StreamEvents)
	}
	table.flush()
}
