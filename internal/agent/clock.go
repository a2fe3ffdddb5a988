package agent

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubecdc/kubecdc/internal/clock"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// NewClock returns the clock of the run. It logs and counts what the clock detects, and calls
// interrupted with it.
func NewClock(log *slog.Logger, reg prometheus.Registerer, interrupted func(clock.Interruption)) *clock.Clock {
	f := promauto.With(reg)
	count := f.NewCounterVec(prometheus.CounterOpts{
		Name: "kubecdc_clock_interruptions_total",
		Help: "Spans in which the times of events are uncertain, by why (stepped: the wall clock was set by a second or more, or the machine was suspended; stopped: the process stood still for two seconds or more).",
	}, []string{"why"})
	for _, w := range []clock.Why{clock.Stepped, clock.Stopped} {
		count.WithLabelValues(string(w))
	}
	c := clock.New(func(i clock.Interruption) {
		count.WithLabelValues(string(i.Why)).Inc()
		interrupted(i)
		attrs := []any{"from", i.From.UTC(), "to", i.To.UTC()}
		switch {
		case i.Why == clock.Stopped:
			log.Warn("the process stood still: it was stopped, or got no CPU", attrs...)
		case i.Step < 0:
			log.Warn("the wall clock was set back: the times of events stand still until it has passed them",
				append(attrs, "by", i.Step)...)
		default:
			log.Warn("the wall clock was set forward, or the machine was suspended", append(attrs, "by", i.Step)...)
		}
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubecdc_clock_ahead_seconds",
		Help: "How far the times of events are ahead of the wall clock, which was set back, or was ahead in the previous run. Above 0 they stand still.",
	}, func() float64 { return c.Ahead().Seconds() })
	return c
}

// reasonOf returns the reason of the interruptions that the clock causes.
func reasonOf(why clock.Why) object.InterruptionReason {
	if why == clock.Stepped {
		return object.InterruptedStepped
	}
	return object.InterruptedStopped
}

// NewOffset returns the comparison of the clock with that of the API server.
func NewOffset(c *clock.Clock, log *slog.Logger, reg prometheus.Registerer) *apiserver.Offset {
	o := apiserver.NewOffset(c.Wall, log)
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubecdc_clock_offset_seconds",
		Help: "How far the agent's clock is ahead of the API server's, by the last response; negative: behind. Exact to half a second, and half of the time of the response.",
	}, func() float64 {
		offset, _, _ := o.Look()
		return offset.Seconds()
	})
	return o
}
