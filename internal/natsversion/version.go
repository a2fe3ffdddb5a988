package natsversion

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	major = 2 // of all servers with JetStream

	// oldest is the oldest minor version that kubecdc works with. Versions before it have no
	// consumers with several filters, and answer other requests of readers differently.
	oldest = 10
	// keeps is the oldest minor version whose replicas store what their leader has acknowledged.
	// Before it, each replica compares its own size with its own max_bytes. If the stream is full,
	// a replica may reject what the leader has accepted, and lead later.
	keeps = 14
)

// Check returns an error if a server is too old for kubecdc. An unknown version is none.
func Check(version string) error {
	if before(version, oldest) {
		return fmt.Errorf("nats-server %s is too old: use 2.%d or later on all servers", version, oldest)
	}
	return nil
}

// LosesWhenFull reports whether a server of this version may lose acknowledged records of a
// stream of several replicas that is full.
func LosesWhenFull(version string) bool { return before(version, keeps) }

// before reports whether a version is known, and below 2.minor.
func before(version string, minor int) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	y, err := strconv.Atoi(second)
	if err != nil {
		return false
	}
	return x < major || x == major && y < minor
}
