// Package natsversion judges the version of a NATS server: whether kubecdc works with it, and
// whether it keeps what it acknowledges.
//
// It starts no goroutines and has no state.
package natsversion
