package config

import (
	"regexp"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// SetDefaults sets the defaults of v, a pointer, if they differ from its zero value.
func SetDefaults(v any) {
	if p, ok := v.(yamldoc.Defaulter); ok {
		p.SetDefaults()
	}
}

// General returns the path that has the facts about a key.
var General = general

// Identity matches the paths that can be neither stripped nor redacted.
func Identity() string { return identity.String() }

// AbsolutePath matches paths that begin with the root.
func AbsolutePath() string { return check.AbsolutePath.String() }

// KeyFacts returns the facts about keys, except their types and limits, by path.
func KeyFacts() map[string]check.Key {
	pattern := func(r *regexp.Regexp) check.Key { return check.Key{Pattern: r.String()} }
	all := map[string]check.Key{
		"cluster":                        pattern(clusterName),
		"watch[].namespaces[]":           pattern(namespacePattern),
		"strip[]":                        pattern(fieldPath),
		"watch[].redact[]":               pattern(fieldPath),
		"claimCheck.objectStore.bucket":  pattern(bucketName),
		"claimCheck.directory.path":      pattern(check.AbsolutePath),
		"claimCheck.http.url":            check.URL(),
		"tracing.endpoint":               check.URL(),
		"relays[].name":                  pattern(relayName),
		"checkpoint.configMap.namespace": pattern(namespaceName),
		"checkpoint.configMap.name":      pattern(subdomain),
		"checkpoint.file.path":           pattern(check.AbsolutePath),
		"leaderElection.lease":           pattern(subdomain),
		"leaderElection.namespace":       {Pattern: "^$|" + namespaceName.String()},
	}
	for _, d := range catalog.Buses() {
		for name, key := range d.Keys {
			all["bus."+d.Name+"."+name] = key
		}
		if d.DeadLetter != nil {
			all["deadLetter."+d.DeadLetter.Key] = d.DeadLetter.Value
		}
	}
	for _, path := range []string{
		"apiVersion", "watch[].resources", "claimCheck.directory.path", "claimCheck.http.url", "relays[].name",
		"relays[].to",
		"checkpoint.configMap.namespace", "checkpoint.file.path",
	} {
		key := all[path]
		key.Required = true
		all[path] = key
	}
	return all
}

// TakenBefore reports whether the rules before rule j take all objects that rule j can take as p;
// by has these rules.
func TakenBefore(rules []Rule, j int, p ResourcePattern) (by []int, all bool) {
	return orderOf(rules).takenBefore(j, p.span())
}
