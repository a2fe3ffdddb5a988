package natsversion

import "github.com/kubecdc/kubecdc/internal/versions"

// Check returns an error if a server is too old for kubecdc. An unknown version is none.
func Check(version string) error { return versions.NATS().Unsupported(version) }

// LosesWhenFull reports whether a server of this version may lose acknowledged records of a
// stream of several replicas that is full.
func LosesWhenFull(version string) bool { return versions.NATS().Loses(version) }
