// Package trace sends spans of sampled events to an OpenTelemetry collector, by OTLP over HTTP
// (OTLP 1.x, binary protobuf, gzip). A [Tracer] makes a trace of a publish.Capture, which is the
// path of one event from the API server to the bus:
//
//	kubecdc.capture deployments.apps updated     observed … acknowledged; its context is the event's traceparent
//	├── queue                                    observed … removed from the queue
//	├── encode
//	└── publish KUBECDC                          passed to the bus … acknowledged; each failed attempt is an event of the span
//
// An event that the bus rejects also has spans claim, dead_letter and gap, and one publish span for
// each time it was sent.
//
// # Invariants
//
//   - Tracing never slows or stops the capture. Captured returns at once. Spans that the collector
//     does not take in time are dropped, and counted by reason.
//   - Memory is bounded: queueLength captures wait, and one batch is in flight. A capture has names
//     and times, no object.
//   - Spans contain neither bodies nor secrets. The name of an object is an attribute, and never a
//     part of a span name.
//   - Trace id and span id of a root are those in the event's traceparent. Copies of an event,
//     published by two agents or around a restart, have two root spans with one id. The ids of
//     other spans are random.
//   - After ctx ends, Run ends within flushTimeout, whatever the collector does.
//
// The package uses the message types of OTLP, but not OpenTelemetry's SDK. A capture is complete
// when it arrives, so that no span must be kept open, and the SDK's HTTP exporter links all of
// gRPC.
//
// # Goroutines
//
// Run: itself. net/http has two for its connection, which end shortly after Run.
package trace
