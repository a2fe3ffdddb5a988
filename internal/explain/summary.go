package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Summary is a short description of a configuration.
type Summary struct {
	Cluster string         `json:"cluster"` // "" for the UID of namespace kube-system
	Watch   []watchedRule  `json:"watch"`
	Noise   []string       `json:"noise,omitempty"` // the enabled noise filters
	Redacts redacts        `json:"redaction"`
	Bus     driver.Summary `json:"bus"`
	Refused refusals       `json:"refused"`
	Relays  []relayed      `json:"relays,omitempty"`
	Off     []string       `json:"off"`            // keys of disabled features
	Mode    string         `json:"mode,omitempty"` // "" for cluster

	checkpoint string // location, for people; "" without one
	takesAll   bool   // the bus accepts every event
}

type watchedRule struct {
	Line       int      `json:"line,omitempty"`
	Resources  []string `json:"resources"`
	Except     []string `json:"except,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Labels     string   `json:"labelSelector,omitempty"`
	Fields     string   `json:"fieldSelector,omitempty"`
	Operations []string `json:"operations,omitempty"` // empty for all
	Where      string   `json:"where,omitempty"`
	OnError    string   `json:"onError,omitempty"`
	Redact     []string `json:"redact,omitempty"`
}

// redacts is the treatment of values that must not leave the cluster.
type redacts struct {
	Secrets       bool   `json:"secrets"`
	Mode          string `json:"mode"`
	AcrossObjects bool   `json:"acrossObjects,omitempty"`
}

// refusals is the treatment of events that the bus does not accept.
type refusals struct {
	MaxEventBytes int64    `json:"maxEventBytes"`
	GivenUp       []string `json:"givenUp"`              // parts that a larger event gives up, in this order
	ClaimCheck    string   `json:"claimCheck,omitempty"` // location of the complete event
	DeadLetter    string   `json:"deadLetter,omitempty"` // a subject, topic or URL; "" if the agent ends instead
}

// relayed is a short description of a relay.
type relayed struct {
	Name string `json:"name"`
	To   string `json:"to"` // the key under to
}

// Summarize returns the summary of a configuration, without values that came from the environment.
func Summarize(f *config.File) *Summary {
	bus, settings := f.Bus.Chosen()
	s := &Summary{
		Cluster:    f.Cluster,
		Bus:        settings.Summary(),
		takesAll:   bus.Stdout,
		Refused:    summarizeRefused(f.Config),
		Relays:     summarizeRelays(f.Config),
		checkpoint: summarizeCheckpoint(f.Config),
		Off:        []string{},
	}
	if f.Mode != config.ModeCluster {
		s.Mode = string(f.Mode)
	}
	for i := range f.Watch {
		r := &f.Watch[i]
		w := watchedRule{
			Line:       f.Line(fmt.Sprintf("watch[%d]", i)),
			Resources:  patterns(r.Resources),
			Except:     patterns(r.Except),
			Namespaces: namespaces(r.Namespaces),
			Labels:     r.LabelSelector,
			Fields:     r.FieldSelector,
			Where:      r.Where,
			OnError:    string(r.OnError),
			Redact:     r.Redact,
		}
		for _, o := range r.Operations {
			w.Operations = append(w.Operations, string(o))
		}
		s.Watch = append(s.Watch, w)
	}
	for _, n := range f.Noise {
		s.Noise = append(s.Noise, string(n))
	}
	s.Redacts = redacts{
		Secrets:       f.Redaction.Secrets,
		Mode:          string(f.Redaction.Mode),
		AcrossObjects: f.Redaction.AcrossObjects,
	}
	for _, o := range []struct {
		key string
		on  bool
	}{
		{"snapshot", f.Snapshot.Mode != config.SnapshotNever},
		{"event.before", f.Event.Before},
		{"event.patch", f.Event.Patch},
		{"checkpoint", agent.KeepsCheckpoint(f.Config)},
		{"leaderElection", f.LeaderElection.Enabled},
		{"tracing", f.Tracing.Enabled},
	} {
		if !o.on {
			s.Off = append(s.Off, o.key)
		}
	}
	s.checkpoint = f.Conceal(s.checkpoint)
	f.ConcealStrings(s)
	return s
}

func summarizeRefused(c *config.Config) refusals {
	r := refusals{MaxEventBytes: int64(c.Event.MaxBytes), GivenUp: []string{}}
	for _, o := range c.Oversize {
		r.GivenUp = append(r.GivenUp, string(o))
	}
	switch k := &c.ClaimCheck; {
	case k.ObjectStore != nil:
		r.ClaimCheck = "object store " + k.ObjectStore.Bucket
	case k.Directory != nil:
		r.ClaimCheck = "directory " + k.Directory.Path
	case k.HTTP != nil:
		r.ClaimCheck = httpconfig.WithoutQuery(k.HTTP.URL)
	}
	bus, _ := c.Bus.Chosen()
	r.DeadLetter = c.DeadLetter.Of(bus)
	if strings.Contains(r.DeadLetter, "://") {
		r.DeadLetter = httpconfig.WithoutQuery(r.DeadLetter)
	}
	return r
}

func summarizeRelays(c *config.Config) []relayed {
	var all []relayed
	for i := range c.Relays {
		to, _ := c.Relays[i].To.Chosen()
		all = append(all, relayed{Name: c.Relays[i].Name, To: to.Name})
	}
	return all
}

func summarizeCheckpoint(c *config.Config) string {
	switch {
	case !agent.KeepsCheckpoint(c):
		return ""
	case c.Checkpoint.File != nil:
		return "file " + c.Checkpoint.File.Path
	case c.Checkpoint.ConfigMap != nil:
		return fmt.Sprintf("ConfigMap %s of namespace %s", c.Checkpoint.ConfigMap.Name,
			c.Checkpoint.ConfigMap.Namespace)
	}
	return "ConfigMap " + config.DefaultCheckpoint + " for an agent in a pod, else a file of its own"
}

func patterns(list []config.ResourcePattern) []string {
	var names []string
	for _, p := range list {
		names = append(names, p.String())
	}
	return names
}

func namespaces(list config.Namespaces) []string {
	var names []string
	for _, n := range list {
		names = append(names, string(n))
	}
	return names
}

// Write prints the summary for people.
func (s *Summary) Write(w io.Writer) {
	table := newFacts(w)
	table.add("cluster", cmp.Or(s.Cluster, "the UID of namespace kube-system"))
	switch config.Mode(s.Mode) {
	case config.ModeNode:
		table.add("mode", "node: the objects of the node that NODE_NAME names")
	case config.ModeCentral:
		table.add("mode", "central: Pods that no node has yet, no Nodes, and the rest as in mode cluster")
	case config.ModeCluster:
	}
	for i, r := range s.Watch {
		key := "watch"
		if i > 0 {
			key = ""
		}
		table.add(key, r.String())
	}
	if len(s.Noise) > 0 {
		table.add("noise", "not sent: "+strings.Join(s.Noise, ", "))
	}
	table.add("redacted", s.redacted())
	table.add("to", s.Bus.Text)
	if s.Bus.Subject != "" {
		table.add("subjects", s.Bus.Subject)
	}
	if s.Bus.Topic != "" {
		table.add("topics", s.Bus.Topic)
	}
	if !s.takesAll {
		table.add("too large", s.Refused.tooLarge())
		table.add("refused", cmp.Or(s.Refused.DeadLetter, "stops the agent: deadLetter is not set"))
	}
	for i, r := range s.Relays {
		key := "relays"
		if i > 0 {
			key = ""
		}
		table.add(key, r.Name+", to "+r.To)
	}
	if s.checkpoint != "" {
		table.add("resumes", "from "+s.checkpoint)
	}
	table.add("off", cmp.Or(strings.Join(s.Off, ", "), "nothing"))
	table.flush()
}

// String describes the rule for people.
func (r watchedRule) String() string {
	s := strings.Join(r.Resources, ", ")
	if s == "*" {
		s = "everything that the API server serves"
	}
	for _, part := range []struct{ words, value string }{
		{"except", strings.Join(r.Except, ", ")},
		{"in namespaces", strings.Join(r.Namespaces, ", ")},
		{"with labels", r.Labels},
		{"with fields", r.Fields},
		{"only", strings.Join(r.Operations, ", ")},
		{"where", strings.Join(strings.Fields(r.Where), " ") + r.failing()},
		{"redacting", strings.Join(r.Redact, ", ")},
	} {
		if part.value != "" {
			s += ", " + part.words + " " + part.value
		}
	}
	return s
}

// redacted describes the redacted values and their treatment for people.
func (s *Summary) redacted() string {
	var what []string
	if s.Redacts.Secrets {
		what = append(what, "the values of Secrets")
	}
	if slices.ContainsFunc(s.Watch, func(r watchedRule) bool { return len(r.Redact) > 0 }) {
		what = append(what, "the paths that rules name")
	}
	if len(what) == 0 {
		return "nothing, not even the values of Secrets"
	}
	how := redactionInWords(s.Redacts.Mode)
	if s.Redacts.AcrossObjects {
		how += ", equal for equal values of a namespace"
	}
	return strings.Join(what, " and ") + ": " + how
}

// failing describes that a change is dropped if its expression fails.
func (r watchedRule) failing() string {
	if r.OnError == string(config.OnErrorDrop) {
		return " (not sent if that fails)"
	}
	return ""
}

// tooLarge describes the treatment of events above the size limit for people.
func (r *refusals) tooLarge() string {
	size := yamldoc.Bytes(r.MaxEventBytes).String()
	if len(r.GivenUp) == 0 {
		return "above " + size + ": refused"
	}
	words := make([]string, len(r.GivenUp))
	for i, w := range r.GivenUp {
		words[i] = w
		if w == string(config.OversizeReference) {
			words[i] = "all but a reference (" + r.ClaimCheck + ")"
		}
	}
	return "above " + size + ": gives up " + strings.Join(words, ", then ")
}
