// Package subject compiles templates with placeholders: to the subjects of NATS, and to the parts
// that Kafka's topics are made of.
//
// It is pure: it does no I/O and starts no goroutine.
package subject
