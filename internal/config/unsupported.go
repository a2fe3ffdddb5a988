package config

import (
	"regexp"
	"slices"
)

// notYet lists the keys of the contract that this release cannot do, and what each would do. They are refused, never
// ignored; when one begins to work it leaves the list and becomes a field. An index of a list is written [].
func notYet(path string) (what string, ok bool) {
	path = indexes.ReplaceAllString(path, "[]")
	i := slices.IndexFunc(notYetKeys(), func(k key) bool { return k.path == path })
	if i < 0 {
		return "", false
	}
	return notYetKeys()[i].what, true
}

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

type key struct{ path, what string }

func notYetKeys() []key {
	return []key{
		{"watch[].operations", "choosing operations"},
		{"watch[].where", "filtering by a CEL expression"},
		{"watch[].onError", "what becomes of a delta whose expression fails"},
		{"watch[].redact", "redacting paths"},
		{"noise", "leaving out known noise"},
		{"redaction.keyFile", "redacting by a keyed hash"},
		{"snapshot.every", "repeating the snapshot"},
		{"event.maxBytes", "bounding the size of an event"},
		{"bus.kafka", "publishing to Kafka"},
		{"bus.http", "publishing over HTTP"},
		{"bus.nats.auth", "authentication to NATS"},
		{"bus.nats.tls", "certificates of one's own for NATS"},
		{"oversize", "shortening events that are too large"},
		{"deadLetter", "dead letters"},
		{"checkpoint", "resuming from a checkpoint"},
		{"leaderElection.lease", "leader election"},
		{"tracing.endpoint", "tracing"},
		{"relay", "relaying from one bus to others"},
	}
}
