// Package subject makes the names that events go to: the subjects of NATS, from a template with placeholders, and the parts of
// templates that Kafka's topics use. It reads them back, too.
//
// It is pure: it does no I/O and starts no goroutine.
package subject
