package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Metrics are the metrics that a dispatcher and its bus share.
type Metrics struct {
	events      *prometheus.CounterVec
	bytes       prometheus.Counter
	duration    prometheus.Histogram
	lag         prometheus.Histogram
	Retries     *prometheus.CounterVec
	Duplicates  prometheus.Counter
	Throttled   prometheus.Counter
	Connected   prometheus.Gauge
	oversize    *prometheus.CounterVec
	deadLetters *prometheus.CounterVec
	alone       prometheus.Gauge

	progressDropped *prometheus.CounterVec
}

// retryReasons returns the retry reasons of all buses.
func retryReasons() []string {
	return []string{
		ReasonTimeout, ReasonConnection, ReasonNoResponders, ReasonStreamFull, ReasonLimit, ReasonStore,
		ReasonUnavailable, ReasonOtherStream,
		ReasonRejected, ReasonMalformed, ReasonClaim, ReasonCut, ReasonThrottled, ReasonServerError, ReasonUnauthorized,
		ReasonProxy, ReasonNotFound,
		ReasonRedirect, ReasonCredentials, ReasonTLS, ReasonUnexpected, ReasonLeader, ReasonReplicas, ReasonStorage,
		ReasonAuthorization,
		ReasonSequence, ReasonSplit, ReasonTimestamp, ReasonBroker, ReasonFalseDuplicate,
	}
}

// countEvent counts an event that the bus acknowledged now, except by its resource; start is the
// time of its hand-over.
func (m *Metrics) countEvent(ev *encode.Event, start, now time.Time) {
	m.duration.Observe(now.Sub(start).Seconds())
	m.bytes.Add(float64(len(ev.Body)))
	d := ev.Delta
	if d.Stream == nil && d.Report == nil && d.Op != object.Read && !d.Inferred {
		m.lag.Observe(max(0, float64(now.UnixNano()-d.Observed)/1e9))
	}
}

// NewMetrics registers the metrics with reg, unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	labelled := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values { // exist from the start, so that an alert sees the first increase
			c.WithLabelValues(v)
		}
		return c
	}
	return &Metrics{
		events: labelled("kubecdc_publish_events_total",
			"Events that the bus has acknowledged, by resource; progress: the progress of the agent.", "resource"),
		bytes: counter("kubecdc_publish_bytes_total", "Size of the bodies of acknowledged events."),
		duration: histogram("kubecdc_publish_duration_seconds",
			"Time from the first attempt to send an event until its acknowledgement, including retries.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300),
		lag: histogram("kubecdc_publish_lag_seconds",
			"Time from when the agent observed a live change until the bus acknowledged its event.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
		Retries: labelled("kubecdc_publish_retries_total",
			"Failed attempts that are retried, by reason; reasons of other kinds of bus stay 0. stream_full and throttled are backpressure.",
			"reason", retryReasons()...),
		Duplicates: counter("kubecdc_publish_duplicates_total",
			"Events that the bus acknowledged as copies of one that it has."),
		Throttled: counter("kubecdc_publish_throttled_seconds_total",
			"Sum of the pauses that brokers of Kafka required because of a quota. The agent sends nothing to the broker meanwhile."),
		Connected: gauge("kubecdc_publish_connected",
			"1 while the agent is connected to the bus and has checked its stream."),
		oversize: labelled("kubecdc_publish_oversize_events_total",
			"Events that were too large for the bus, or too deep, and were sent shortened, by the last part removed: patch (also if it cost too much), before, or reference (the claim store has the whole event).",
			"given_up", GiveUpPatch, GiveUpBefore, Reference),
		alone: gauge("kubecdc_publish_isolated_events",
			"Events that are sent one at a time, on a connection of their own, because the bus denies only them, or connections break whenever they are sent. kubecdc dead-letter lists them."),
		deadLetters: labelled("kubecdc_publish_dead_letters_total",
			"Events sent to the dead letters instead of the bus, by reason: too_large, refused or encode. Alert on it: consumers get a gap in their place.",
			"reason", letterTooLarge, letterRefused, letterEncode),
		progressDropped: labelled("kubecdc_publish_progress_dropped_total",
			"Progress events of the agent that were dropped, by reason: too_large, refused or encode. Alert on it: until the next one, nothing confirms to consumers that they have everything.",
			"reason", letterTooLarge, letterRefused, letterEncode),
	}
}

// Totals are sums since the process started.
type Totals struct {
	Events, Bytes uint64 // acknowledged
	Retries       uint64 // failed attempts that were repeated
	Duplicates    uint64 // acknowledged as copies
	Shortened     uint64 // events that were too large
	DeadLetters   uint64
}

// Totals returns the sums of the counters.
func (m *Metrics) Totals() Totals {
	return Totals{
		Events:      total(m.events),
		Bytes:       total(m.bytes),
		Retries:     total(m.Retries),
		Duplicates:  total(m.Duplicates),
		Shortened:   total(m.oversize),
		DeadLetters: total(m.deadLetters),
	}
}

// total returns the sum of the counters of c.
func total(c prometheus.Collector) uint64 {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, _ := reg.Gather() // counters of this package have no error
	sum := 0.0
	for _, f := range families {
		for _, one := range f.GetMetric() {
			sum += one.GetCounter().GetValue()
		}
	}
	return uint64(sum)
}

// Reasons of a failed attempt that is repeated: values of the label reason of
// kubecdc_publish_retries_total.
const (
	ReasonTimeout     = "timeout"     // no acknowledgement in time
	ReasonConnection  = "connection"  // the connection broke, or does not exist
	ReasonUnavailable = "unavailable" // no leader, too many requests, offline
	ReasonClaim       = "claim_store" // the claim store did not accept a large event

	// NATS.
	ReasonNoResponders = "no_responders" // no stream has the subject: it is gone, or has no leader
	ReasonStreamFull   = "stream_full"   // discard new: backpressure
	ReasonLimit        = "account_limit" // a limit of the account or the server
	ReasonStore        = "store_failed"  // the server could not write
	ReasonOtherStream  = "other_stream"  // acknowledged by another stream than the configured one
	ReasonRejected     = "rejected"      // any other error of the server
	ReasonMalformed    = "malformed"     // not a JetStream acknowledgement

	// ReasonFalseDuplicate: JetStream said that it has the event already, and does not.
	ReasonFalseDuplicate = "false_duplicate"

	// HTTP.
	ReasonCut          = "cut"           // the connection was closed without an answer
	ReasonThrottled    = "throttled"     // 429: backpressure
	ReasonServerError  = "server_error"  // 5xx except 503
	ReasonUnauthorized = "unauthorized"  // 401, 403
	ReasonProxy        = "proxy_refused" // 407
	ReasonNotFound     = "not_found"     // 404
	ReasonRedirect     = "redirect"      // 3xx
	ReasonCredentials  = "credentials"   // headersFile or tokenFile cannot be used
	ReasonTLS          = "tls"           // the handshake failed, or a file for it cannot be used
	ReasonUnexpected   = "unexpected"    // a status that HTTP does not define

	// Kafka.
	ReasonLeader        = "leader"        // the partition has no leader, or another one
	ReasonReplicas      = "replicas"      // too few replicas are in sync
	ReasonStorage       = "storage"       // the broker cannot write
	ReasonAuthorization = "authorization" // the user is unknown, or lacks a permission
	ReasonSequence      = "sequence"      // the broker cannot continue the sequence: another epoch, or producer id
	ReasonSplit         = "split"         // the batch was refused; its events are sent in smaller ones
	ReasonTimestamp     = "timestamp"     // the topic rejects records of that age
	ReasonBroker        = "broker"        // any other error
)
