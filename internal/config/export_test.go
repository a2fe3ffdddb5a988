package config

import (
	"regexp"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
)

// SetDefaults sets the defaults of v, a pointer, if it has other ones than its zero value.
func SetDefaults(v any) {
	if p, ok := v.(yamldoc.Defaulter); ok {
		p.SetDefaults()
	}
}

// General is the path under which something is known that is said of a key.
var General = general

// Identity matches the paths that can be neither stripped nor redacted.
func Identity() string { return identity.String() }

// AbsolutePath matches paths that begin with the root.
func AbsolutePath() string { return check.AbsolutePath.String() }

// KeyFacts returns what is known of keys beside their types and limits, by path.
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
	for _, d := range drivers.Buses() {
		for name, key := range d.Keys {
			all["bus."+d.Name+"."+name] = key
		}
		if d.DeadLetter != nil {
			all["deadLetter."+d.DeadLetter.Key] = d.DeadLetter.Value
		}
	}
	for _, path := range []string{
		"apiVersion", "watch[].resources", "claimCheck.directory.path", "claimCheck.http.url", "relays[].name", "relays[].to",
		"checkpoint.configMap.namespace", "checkpoint.file.path",
	} {
		key := all[path]
		key.Required = true
		all[path] = key
	}
	return all
}

// TakenBefore tells whether rules before rule j take all that it names as p.
func TakenBefore(rules []Rule, j int, p ResourcePattern) (by []int, all bool) {
	return orderOf(rules).takenBefore(j, p.span())
}
