package timeline

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A record without a gap may still differ from etcd at a time. Progress reports two kinds of such
// spans: in an interruption, the scope was not observed; in a hidden span, filters withheld
// versions.

// interruption is a span in which a writer did not observe the scope. Versions inside have the time
// at which an agent found them. A zero until is not known.
type interruption struct {
	why         consume.InterruptionReason
	from, until time.Time
	stopped     time.Time // before the start of a run: when the previous run ended; zero: it did not say that
}

func (i *interruption) cause() *certainty.Cause {
	return &certainty.Cause{
		Kind:    certainty.Interrupted,
		Why:     i.why,
		Stopped: i.stopped,
		From:    mark{time: i.from}.bound(),
		To:      mark{time: i.until}.bound(),
	}
}

// isAround reports whether a moment is inside. If the moment is a span, it reports whether one of
// its times is.
func (i *interruption) isAround(m Moment) bool {
	return m.kind == atTime && i.from.Before(m.time) && (i.until.IsZero() || m.begin().Before(i.until))
}

// hiddenSpan is a span in which filters withhold the last version of an object, so that the state
// has an earlier one. Or it is not known whether they did. A zero end is not known.
type hiddenSpan struct{ from, until mark }

// hiddenOf returns a hidden span as an entry of a progress reports it.
func hiddenOf(h *consume.HiddenSpan, entry *consume.ScopeProgress) hiddenSpan {
	markOf := func(t time.Time, rv string) mark {
		m := mark{time: t}
		if n := number(rv); n > 0 {
			m.at = point{entry.History, n}
		}
		return m
	}
	out := hiddenSpan{markOf(h.From, h.FromResourceVersion), markOf(h.Until, h.UntilResourceVersion)}
	if !h.IsOpen() {
		out.until = out.until.or(claimOf(entry))
	}
	return out
}

func (h *hiddenSpan) cause() *certainty.Cause {
	return &certainty.Cause{Kind: certainty.Filtered, From: h.from.bound(), To: h.until.bound()}
}

// isAround reports whether a moment is inside. If the moment is a span, it reports whether one of
// its times is. The end of the record is inside a span without an end.
func (h *hiddenSpan) isAround(m Moment) bool {
	switch m.kind {
	case atTime:
		return !h.from.time.After(m.time) && (h.until.time.IsZero() || m.begin().Before(h.until.time))
	case atVersion:
		return !m.rv.isBefore(h.from.at) && (h.until.at == point{} || m.rv.isBefore(h.until.at))
	}
	return h.until.isZero()
}

// claimOf returns up to where an entry says that the log has everything.
func claimOf(entry *consume.ScopeProgress) mark {
	return mark{entry.To, point{entry.History, number(entry.ResourceVersion)}}
}
