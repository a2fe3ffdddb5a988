package config

import (
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// ServerSchemes is what the reference and the JSON Schema share with Validate.
var ServerSchemes = serverSchemes

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
func AbsolutePath() string { return absolutePath.String() }

// Patterns are the regular expressions of texts that have one, by path.
func Patterns() map[string]string {
	return map[string]string{
		"cluster":                        clusterName.String(),
		"watch[].namespaces[]":           namespacePattern.String(),
		"strip[]":                        fieldPath.String(),
		"watch[].redact[]":               fieldPath.String(),
		"bus.nats.stream.name":           streamName.String(),
		"bus.nats.inboxPrefix":           inboxPrefix.String(),
		"bus.nats.domain":                jetStreamDomain.String(),
		"claimCheck.objectStore.bucket":  bucketName.String(),
		"claimCheck.directory.path":      absolutePath.String(),
		"deadLetter.subject":             deadSubject.String(),
		"deadLetter.topic":               deadTopic.String(),
		"relays[].name":                  relayName.String(),
		"checkpoint.configMap.namespace": namespaceName.String(),
		"checkpoint.configMap.name":      subdomain.String(),
		"checkpoint.file.path":           absolutePath.String(),
		"leaderElection.lease":           subdomain.String(),
		"leaderElection.namespace":       "^$|" + namespaceName.String(),
	}
}

// TopicsMeet reports whether two templates can make the same topic.
func TopicsMeet(a, b string) bool { return topicsMeet(a, b) }

// TakenBefore tells whether rules before rule j take all that it names as p.
func TakenBefore(rules []Rule, j int, p ResourcePattern) (by []int, all bool) {
	return orderOf(rules).takenBefore(j, p.span())
}
