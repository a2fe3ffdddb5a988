package timeline

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// An answer must say how certain the state of each scope is at the moment, and why it is not more
// certain. The methods of this file judge that from the facts in a scope. The first cause that
// applies decides: another etcd, the end of the scope, a former release, the time before the
// record, a gap. At a resourceVersion, and now, the time after the record follows, then filters. At
// a time, filters come first, then an interruption, then the time after the record.

// judge returns the certainty of the scope of a cluster at a moment.
func (s *scope) judge(of consume.ClusterKey, m Moment, o Options) certainty.Scope {
	etcd := SameEtcd
	if m.kind == atVersion && o.Etcd != nil {
		etcd = o.Etcd(of, s.resource)
	}
	out := certainty.Scope{
		Source:     of.Source,
		ClusterUID: of.UID,
		Resource:   s.resource,
		Certainty:  certainty.Exact,
	}
	if m.kind == atVersion && (s.isUnordered || etcd == OtherEtcd) {
		out.Lower(certainty.Cause{Kind: certainty.OtherEtcd})
		return out
	}
	cause := s.judgeInEtcd(m, &out)
	isKnown := cause == nil || cause.Kind.Level() != certainty.Unknown
	if etcd == UnknownEtcd && isKnown {
		cause = &certainty.Cause{Kind: certainty.EtcdNotKnown}
	}
	if cause != nil {
		out.Lower(*cause)
	}
	return out
}

// judgeInEtcd returns what lowers the certainty if the moment is of the etcd of the scope, nil if
// nothing does. It sets the bounds and the end of the scope in out.
func (s *scope) judgeInEtcd(m Moment, out *certainty.Scope) *certainty.Cause {
	judged := *s
	judged.edges = nil // a question notes nothing: later events may move the end of an open gap
	for _, g := range s.openGaps {
		judged.noteGapAround(m, g)
	}
	end := s.end()
	switch {
	case end != nil && end.isBy(m):
		out.Ended = &end.End
		if end.Reason == consume.EndForgotten { // no agent observed what became of its objects
			return &certainty.Cause{Kind: certainty.EndedByOperator, From: s.complete().bound()}
		}
		out.From = end.at.bound()
		return nil
	case s.isOfFormerRelease():
		return &certainty.Cause{Kind: certainty.FormerRelease, From: s.former.bound()}
	case s.knownFrom.isZero(), s.knownFrom.isAfter(m):
		return s.judgeBefore()
	case judged.gapAround != nil:
		return judged.gapAround.cause(certainty.Gap, judged.gapAround.from, end)
	case judged.recoveredAround != nil: // it may lack objects that were created and deleted inside, or their ends
		g := judged.recoveredAround
		return g.cause(certainty.RecoveredGap, mark{g.from.time, g.announced}, end)
	case m.kind == atVersion && s.reached.at.isBefore(m.rv):
		return s.afterRecord(s.reached)
	case m.kind == atNow && m.time.Sub(s.complete().time) > MaxLag:
		return s.afterRecord(s.complete())
	case m.kind == atTime:
		out.From, out.To = s.claimBefore.bound(), s.claimAfter.bound()
		return s.judgeTime(m)
	}
	if h := s.hiddenAt(m); h != nil {
		return h.cause()
	}
	out.From = s.reached.bound()
	if m.kind == atNow {
		out.From = s.complete().bound()
	}
	return nil
}

// judgeBefore returns why nothing is known before the first snapshot that was read.
func (s *scope) judgeBefore() *certainty.Cause {
	kind := certainty.BeforeRecord
	switch {
	case s.knownFrom.isZero():
		kind = certainty.NoSnapshot
	case s.isJoined:
		kind = certainty.NotRead
	case s.isKnownCurrent:
		kind = certainty.FormerRelease
	}
	return &certainty.Cause{Kind: kind, To: s.knownFrom.bound()}
}

// afterRecord is the cause of a moment after the end of the record.
func (s *scope) afterRecord(end mark) *certainty.Cause {
	return &certainty.Cause{
		Kind:   certainty.AfterRecord,
		From:   end.bound(),
		Heard:  s.lastProgress(),
		Lagged: s.lagged,
	}
}

// judgeTime returns what lowers the certainty at a time around which there is no gap, nil if
// nothing does. The time is certain if one writer observed the scope and withheld nothing.
func (s *scope) judgeTime(m Moment) *certainty.Cause {
	var interrupted *interruption
	var hidden *hiddenSpan
	for _, name := range sortedKeys(s.observations) {
		o := s.observations[name]
		if o.claimedTime.Before(m.time) {
			continue
		}
		i, h := o.interruptionAt(m, s.claimBefore.time), o.hiddenAt(m)
		switch {
		case i == nil && h == nil:
			return nil
		case h != nil:
			hidden = h
		case interrupted == nil:
			interrupted = i
		}
	}
	switch end := s.end(); {
	case hidden != nil:
		return hidden.cause()
	case interrupted != nil:
		return interrupted.cause()
	case end != nil: // no progress follows
		return (&interruption{why: certainty.InterruptedEnded, from: s.complete().time, until: end.Time}).cause()
	}
	return s.afterRecord(s.claimBefore)
}

// hiddenAt returns the hidden span around a moment that is not a time, nil if there is none.
func (s *scope) hiddenAt(m Moment) *hiddenSpan {
	var newest time.Time
	isDecided := false
	for _, o := range s.observations {
		newest, isDecided = latest(newest, o.lastTime), isDecided || o.isDecided
	}
	if m.kind == atVersion && !isDecided && !s.hidesReads() && !m.rv.isBefore(s.lastSnapshot.at) {
		return nil // a snapshot has read what was withheld
	}
	if !isDecided {
		if h := s.unreportedAt(m); h != nil {
			return h
		}
	}
	var hidden *hiddenSpan
	for _, name := range sortedKeys(s.observations) {
		o := s.observations[name]
		isSilent := o.lastTime.IsZero() || m.kind != atVersion && newest.Sub(o.lastTime) > MaxLag
		if isSilent || o.isDecided != isDecided {
			continue
		}
		h := o.hiddenAt(m)
		if h == nil {
			return nil // this writer withheld nothing
		}
		hidden = h
	}
	return hidden
}

// hidesReads reports whether filters withhold reads of snapshots, or have done so.
func (s *scope) hidesReads() bool {
	for _, o := range s.observations {
		if o.hidesReads {
			return true
		}
	}
	return false
}

// unreportedAt returns the span of the versions after the last claim, or since the first snapshot,
// if filters may have withheld some and the moment is inside. Otherwise, it returns nil.
func (s *scope) unreportedAt(m Moment) *hiddenSpan {
	var claimed mark
	hasFilters := false
	for _, o := range s.observations {
		claimed, hasFilters = claimed.max(mark{at: o.claimedPoint}), hasFilters || o.hasFilters
	}
	from := s.knownFrom.max(claimed).at
	isKnown := m.rv.isBefore(from) || m.rv == from && (from == claimed.at || !s.hidesReads())
	if m.kind != atVersion || !hasFilters || isKnown {
		return nil
	}
	return &hiddenSpan{from: mark{at: from}}
}
