// Package fromnats reads the events of kubecdc from JetStream of NATS: JetStream is a
// consume.Source. Run is for services: the server stores their position, and delivers events again
// that the handler did not accept. Whole fetches an event that was too large for the bus.
//
// A Reader makes its requests in the background, and fetches some megabytes ahead. Run calls its
// handler from its own goroutine. The package logs nothing.
package fromnats
