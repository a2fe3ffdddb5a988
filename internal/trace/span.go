package trace

import (
	"crypto/rand"
	"strconv"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	spans "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// schemaURL is the version of OpenTelemetry's semantic conventions that the attributes follow.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// sampledFlag is defined by W3C Trace Context; localParent says that a span's parent is known to be
// in the same process.
const (
	sampledFlag = 0x01
	localParent = 0x100
)

func newResource(cfg *Config) *spans.ResourceSpans {
	a := texts(
		"service.name", "kubecdc",
		"service.version", cfg.Version,
		"service.instance.id", cfg.Instance,
		"k8s.cluster.name", cfg.Cluster,
		"k8s.cluster.uid", cfg.ClusterUID,
	)
	return &spans.ResourceSpans{
		Resource: &resource.Resource{Attributes: a}, SchemaUrl: schemaURL,
		ScopeSpans: []*spans.ScopeSpans{{Scope: &common.InstrumentationScope{
			Name:    "github.com/kubecdc/kubecdc",
			Version: cfg.Version,
		}}},
	}
}

// spansOf returns the number of spans that appendSpans makes of c.
func spansOf(c *publish.Capture) int { return 2 + len(c.Stages) }

func (t *Tracer) appendSpans(dst []*spans.Span, c *publish.Capture) []*spans.Span {
	root := &spans.Span{
		TraceId: c.Trace.ID[:],
		SpanId:  c.Trace.Span[:],
		Flags:   sampledFlag,
		Name:    "kubecdc.capture " + c.Ref.Resource.String() + " " + c.Op.Word(),
		// The spans of consumers have this one as their parent.
		Kind:              spans.Span_SPAN_KIND_PRODUCER,
		StartTimeUnixNano: nano(c.Observed),
		EndTimeUnixNano:   nano(c.End),
		Attributes:        t.attributes(c),
		Status:            statusOf(c.Err),
	}
	dst = append(dst, root, child(c, "queue", c.Observed, c.Taken))
	for i := range c.Stages {
		dst = append(dst, t.addStage(c, &c.Stages[i]))
	}
	return dst
}

func (t *Tracer) attributes(c *publish.Capture) []*common.KeyValue {
	return texts(
		"cloudevents.event_id", c.ID,
		"cloudevents.event_source", c.Source,
		"cloudevents.event_spec_version", "1.0",
		"cloudevents.event_type", c.Type,
		"messaging.system", t.cfg.System,
		"messaging.destination.name", t.cfg.Destination,
		"messaging.message.id", c.ID,
		"k8s.namespace.name", c.Ref.Namespace(),
		"kubecdc.resource", c.Ref.Resource.String(),
		"kubecdc.op", string(c.Op),
		"kubecdc.object.kind", c.Ref.Resource.Kind,
		"kubecdc.object.name", c.Ref.Name(),
		"kubecdc.object.uid", c.Ref.UID,
		"kubecdc.object.resource_version", version(c.Version),
	)
}

func (t *Tracer) addStage(c *publish.Capture, s *publish.Stage) *spans.Span {
	span := child(c, s.Name, s.Start, s.End)
	span.Status = statusOf(s.Err)
	if s.Name == publish.StagePublish || s.Name == publish.StageGap {
		if t.cfg.Destination != "" {
			span.Name += " " + t.cfg.Destination
		}
		span.Kind = spans.Span_SPAN_KIND_CLIENT
		span.Attributes = texts(
			"messaging.operation.name", "publish",
			"messaging.operation.type", "send",
			"messaging.system", t.cfg.System,
			"messaging.destination.name", t.cfg.Destination,
			"messaging.message.id", c.ID,
		)
	}
	if s.Bytes > 0 {
		span.Attributes = append(span.Attributes, number("messaging.message.envelope.size", int64(s.Bytes)))
	}
	if s.Failed > 0 {
		span.Attributes = append(span.Attributes, number("kubecdc.attempts.failed", int64(s.Failed)))
	}
	for _, f := range s.Failures {
		span.Events = append(span.Events, &spans.Span_Event{
			TimeUnixNano: nano(f.At), Name: "attempt failed", Attributes: texts("error.type", f.Reason),
		})
	}
	span.DroppedEventsCount = uint32(s.Failed - len(s.Failures))
	return span
}

// child returns a span below the root.
func child(c *publish.Capture, name string, start, end time.Time) *spans.Span {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return &spans.Span{
		TraceId:           c.Trace.ID[:],
		SpanId:            id,
		ParentSpanId:      c.Trace.Span[:],
		Flags:             sampledFlag | localParent,
		Name:              name,
		Kind:              spans.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nano(start),
		EndTimeUnixNano:   nano(end),
	}
}

// statusOf returns nil (unset) on success, as the specification requires of instrumentation.
func statusOf(err error) *spans.Status {
	if err == nil {
		return nil
	}
	return &spans.Status{Code: spans.Status_STATUS_CODE_ERROR, Message: err.Error()}
}

func nano(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

func version(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}

// texts returns attributes from alternating names and values. It omits those without a value.
func texts(pairs ...string) []*common.KeyValue {
	var a []*common.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			a = append(a, &common.KeyValue{
				Key: pairs[i], Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: pairs[i+1]}},
			})
		}
	}
	return a
}

func number(name string, n int64) *common.KeyValue {
	return &common.KeyValue{Key: name, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}}
}
