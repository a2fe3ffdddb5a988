package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// checkSent is what there is to say about what is sent: about paths and expressions.
func checkSent(c *config.Config) []*yamldoc.Error {
	errs := checkPaths(c.Strip, "strip")
	for i := range c.Watch {
		errs = append(errs, checkPaths(c.Watch[i].Redact, fmt.Sprintf("watch[%d].redact", i))...)
	}
	return append(errs, checkExpressions(c)...)
}

// checkPaths is what the cutter has to say about paths, which is more than config knows of their grammar.
func checkPaths(paths []string, key string) []*yamldoc.Error {
	var errs []*yamldoc.Error
	for i, p := range paths {
		_, err := object.NewCutter([]string{p})
		for _, err := range each(err) {
			e := &yamldoc.Error{Path: fmt.Sprintf("%s[%d]", key, i), Message: "must be a path: " + err.Error()}
			var wrong *object.PathError
			if errors.As(err, &wrong) {
				before := p[:min(max(wrong.Column-1, 0), len(p))]
				e.Message, e.TextLine, e.TextColumn = "must be a path: "+wrong.Msg, 1, utf8.RuneCountInString(before)+1
			}
			errs = append(errs, e)
		}
	}
	return errs
}

// checkExpressions is what CEL has to say about the rules' expressions.
func checkExpressions(c *config.Config) []*yamldoc.Error {
	var errs []*yamldoc.Error
	for i := range c.Watch {
		if c.Watch[i].Where == "" {
			continue
		}
		_, err := filter.New(filter.Options{Where: c.Watch[i].Where})
		for _, err := range each(err) {
			e := &yamldoc.Error{Path: fmt.Sprintf("watch[%d].where", i), Message: "must be a CEL expression: " + err.Error()}
			var wrong *filter.ExpressionError
			if errors.As(err, &wrong) {
				e.Message, e.TextLine, e.TextColumn = "must be a CEL expression: "+wrong.Message, wrong.Line, startOfCall(c.Watch[i].Where, wrong)
			}
			errs = append(errs, e)
		}
	}
	return errs
}

// doubtExpressions finds expressions that never send what tells which objects exist, or nothing at all, and those that look where
// nothing is.
func doubtExpressions(c *config.Config) []*yamldoc.Error {
	var doubts []*yamldoc.Error
	for i := range c.Watch {
		r := &c.Watch[i]
		f, err := filter.New(filter.Options{Where: r.Where})
		if err != nil || r.Where == "" {
			continue // an error is told by checkSent
		}
		doubt := func(format string, args ...any) {
			doubts = append(doubts, &yamldoc.Error{Path: fmt.Sprintf("watch[%d].where", i), Message: fmt.Sprintf(format, args...)})
		}
		ops := []object.Op{object.Created, object.Updated, object.Deleted, object.Read, object.Entered, object.Left}
		if !slices.ContainsFunc(ops, func(op object.Op) bool { return !f.NeverHolds(op) }) {
			doubt("never holds: nothing is sent of what the rule takes")
			continue
		}
		if c.Snapshot.Mode != config.SnapshotNever && f.NeverHolds(object.Read) {
			doubt(`never holds for op "r": no snapshot tells of the objects that exist; write op == "r" || (…) to send them`)
		}
		if (r.LabelSelector != "" || r.FieldSelector != "") && f.NeverHolds(object.Left) {
			doubt(`never holds for op "l": nothing tells that an object has ceased to match the rule's selectors; write op == "l" || (…) to send that`)
		}
		doubtAsks(c, i, f.Asks(), doubt)
	}
	return doubts
}

// doubtAsks finds paths of rule i's expression that may name nothing, and questions that do not see what redaction removes.
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
			case ask.Only: // told below, once
			case everywhere.Removes(path):
				doubt("%s is never true: this is stripped, or removed by redaction", call)
			case takesSecrets && ofSecrets.Removes(path):
				doubt("%s is never true of Secrets, whose values redaction removes; with redaction.mode hash it shows that they change", call)
			}
		}
	}
	_, redacted := withheldOf(c, r, config.Resource{})
	if takesSecrets {
		_, redacted = withheldOf(c, r, secrets)
	}
	if unseen && len(redacted) > 0 && c.Redaction.Mode == config.RedactRemove {
		doubt("changedOnly is true also of an update that changes nothing but what redaction removes (%s); with redaction.mode hash it shows "+
			"that this changes", strings.Join(redacted, ", "))
	}
}

// withoutRemoved cuts what nothing is left of, in the objects of a resource that a rule takes.
func withoutRemoved(c *config.Config, rule *config.Rule, r config.Resource) *object.Cutter {
	removed, redacted := withheldOf(c, rule, r)
	if c.Redaction.Mode == config.RedactRemove {
		removed = union(removed, redacted...)
	}
	cutter, err := object.NewCutter(removed)
	if err != nil {
		return nil // an error is told by checkSent
	}
	return cutter
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']+)'`)

// startOfCall is the column of what is wrong: CEL points at the parenthesis of a call, not at the name of the function.
func startOfCall(where string, e *filter.ExpressionError) int {
	lines := strings.Split(where, "\n")
	m := undeclared.FindStringSubmatch(e.Message)
	if m == nil || e.Line > len(lines) {
		return e.Column
	}
	line, name := []rune(lines[e.Line-1]), []rune(m[1])
	if at := e.Column - 1; at >= len(name) && at <= len(line) && string(line[at-len(name):at]) == m[1] {
		return e.Column - len(name)
	}
	return e.Column
}

// each takes joined errors apart, also those that were joined to others.
func each(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}

// noiseOf are the ready-made filters that can withhold updates of objects of a resource that a rule takes.
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

// removesFrom tells of which resources redaction leaves values out of the objects that a rule takes: then a change of such a
// value alone looks like none.
func removesFrom(c *config.Config, rule *config.Rule) func(r *object.Resource) bool {
	return func(r *object.Resource) bool {
		_, redacted := withheldOf(c, rule, config.Resource{Group: r.Group, Name: r.Name})
		return len(redacted) > 0 && c.Redaction.Mode == config.RedactRemove
	}
}

// withheldOf is what is cut from objects of a resource that a rule takes, and what is redacted of them.
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

// union appends what is not there yet.
func union(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
