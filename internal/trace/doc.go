// Package trace sends spans of sampled events to an OpenTelemetry collector, by OTLP over HTTP (OTLP 1.x, binary protobuf,
// gzip). A [Tracer] takes a publish.Capture, the way of one event from the API server to the bus, and makes a trace of it:
//
//	kubecdc.capture deployments.apps updated     observed … acknowledged; its context is the event's traceparent
//	├── queue                                    observed … taken out of the queue
//	├── encode
//	└── publish KUBECDC                          handed to the bus … acknowledged; each attempt that failed is an event of it
//
// An event that the bus does not take has spans claim, dead_letter and gap besides, and a publish for each time it was offered.
//
// # Invariants
//
//   - Nothing here slows or stops the capture. Captured returns at once; what the collector does not take in time is dropped, and
//     counted by reason.
//   - What is kept is bounded: queueLength captures wait, one batch is on its way. A capture has names and times, no object.
//   - Neither bodies nor secrets leave in a span. The name of an object does, as an attribute; span names have none.
//   - Trace id and span id of a root are those in the event's traceparent, and the same for each copy of the event: where an event
//     was published twice, by two agents or around a restart, there are two root spans with one id. The ids of the others are random.
//   - An end within flushTimeout, whatever the collector does.
//
// It has the message types of OTLP and not OpenTelemetry's SDK: a capture is complete when it comes here, so that there is nothing
// to keep open, and the SDK's HTTP exporter links all of gRPC.
//
// # Goroutines
//
// Run: itself. net/http has two for its connection, which end moments after Run does.
package trace
