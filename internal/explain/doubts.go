package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Doubts finds expressions that never hold, or never hold for the operations that show which
// objects exist (read, left). It also finds expressions that test paths without values.
func Doubts(c *config.Config) []*yamldoc.Error {
	var doubts []*yamldoc.Error
	for i := range c.Watch {
		r := &c.Watch[i]
		f, err := filter.New(filter.Options{Where: r.Where})
		if err != nil || r.Where == "" {
			continue // agent.CheckRules reports the error
		}
		doubt := func(format string, args ...any) {
			doubts = append(doubts, &yamldoc.Error{
				Path:    fmt.Sprintf("watch[%d].where", i),
				Message: fmt.Sprintf(format, args...),
			})
		}
		ops := object.Ops()
		if !slices.ContainsFunc(ops, func(op object.Op) bool { return !f.NeverHolds(op) }) {
			doubt("is never true: the rule sends nothing")
			continue
		}
		if c.Snapshot.Mode != config.SnapshotNever && f.NeverHolds(object.Read) {
			doubt(
				`is never true for op "r": snapshots send none of the existing objects; write op == "r" || (…) to send them`)
		}
		if (r.LabelSelector != "" || r.FieldSelector != "") && f.NeverHolds(object.Left) {
			doubt(
				`is never true for op "l": no event shows that an object no longer matches the rule's selectors; write op == "l" || (…) to send that`)
		}
		doubtAsks(c, i, f.Asks(), doubt)
	}
	return doubts
}

// doubtAsks finds paths of rule i's expression that may not exist, and tests that cannot see values
// removed by redaction.
func doubtAsks(c *config.Config, i int, asks []filter.Ask, doubt func(format string, args ...any)) {
	r := &c.Watch[i]
	secrets := config.Resource{Name: "secrets"}
	takesSecrets := slices.ContainsFunc(c.Explain(secrets).Taking, func(t config.Taking) bool { return t.Rule == i })
	everywhere, ofSecrets := withoutRemoved(c, r, config.Resource{}), withoutRemoved(c, r, secrets)
	told := map[string]bool{}
	unseen := false
	for _, ask := range asks {
		unseen = unseen || ask.Only
		call := "changed"
		if ask.Only {
			call = "changedOnly"
		}
		for _, path := range ask.Paths {
			call := fmt.Sprintf("%s(%q)", call, path)
			if told[call] {
				continue
			}
			told[call] = true
			switch why := r.DoubtPath(path); {
			case why != "":
				doubt("%s: the path %s", call, why)
			case ask.Only: // reported once, below
			case everywhere.Removes(path):
				doubt("%s is never true: this is stripped, or removed by redaction", call)
			case takesSecrets && ofSecrets.Removes(path) && strings.HasPrefix(path, "metadata.annotations"):
				doubt(
					"%s is never true of Secrets: redaction keeps only their listed annotations (docs/guides/redact.md)",
					call)
			case takesSecrets && ofSecrets.Removes(path):
				doubt(
					"%s is never true of Secrets, whose values redaction removes; with redaction.mode hash it shows that they change",
					call)
			}
		}
	}
	_, redacted := withheldOf(c, r, config.Resource{})
	if takesSecrets {
		_, redacted = withheldOf(c, r, secrets)
	}
	if unseen && len(redacted) > 0 && c.Redaction.Mode == config.RedactRemove {
		doubt(
			"changedOnly is also true for an update that changes only what redaction removes (%s); with redaction.mode hash it shows "+
				"that this changes", strings.Join(redacted, ", "))
	}
}

// withoutRemoved returns a cutter for the paths that are removed completely from the objects of a
// resource under a rule.
func withoutRemoved(c *config.Config, rule *config.Rule, r config.Resource) *object.Cutter {
	removed, redacted := withheldOf(c, rule, r)
	if c.Redaction.Mode == config.RedactRemove {
		removed = union(removed, redacted...)
	}
	cutter, err := object.NewCutter(removed)
	if err == nil && c.Redaction.Secrets {
		cutter, err = cutter.RedactCopies(r.Group, r.Name)
	}
	if err != nil {
		return nil // agent.CheckRules reports the error
	}
	return cutter
}

// noiseOf returns the built-in filters that can withhold updates of a resource's objects under a
// rule.
func noiseOf(c *config.Config, rule *config.Rule, r *object.Resource) ([]string, error) {
	all := []string{}
	for _, n := range c.Noise {
		f, err := filter.New(filter.Options{Noise: []string{string(n)}, Removes: removesFrom(c, rule)})
		if err != nil {
			return nil, fmt.Errorf("noise %s: %w", n, err)
		}
		if f.For(r) != nil {
			all = append(all, string(n))
		}
	}
	return all, nil
}

// removesFrom returns a function that reports whether redaction removes values from the objects of
// a resource under a rule: a change of only such a value looks like no change.
func removesFrom(c *config.Config, rule *config.Rule) func(r *object.Resource) bool {
	return func(r *object.Resource) bool {
		_, redacted := withheldOf(c, rule, config.Resource{Group: r.Group, Name: r.Name})
		return len(redacted) > 0 && c.Redaction.Mode == config.RedactRemove
	}
}

// withheldOf returns the paths that are stripped, and those that are redacted, from the objects of
// a resource under a rule.
func withheldOf(c *config.Config, rule *config.Rule, r config.Resource) (stripped, redacted []string) {
	stripped, redacted = append([]string{}, c.Strip...), []string{}
	if r.Group == "" && r.Name == "secrets" && c.Redaction.Secrets {
		redacted = object.SecretPaths(c.Redaction.Mode == config.RedactHash)
	}
	redacted = union(redacted, rule.Redact...)
	if len(redacted) > 0 {
		stripped = union(stripped, object.Copies()...)
	}
	return stripped, redacted
}

// union appends the missing elements.
func union(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
