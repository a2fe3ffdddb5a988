package oracle

// covers reports whether a gap may concern the object. A gap with reason dead-letter concerns only
// the object of the dead letter, although its scope is larger.
func (j *judgement) covers(g *Record, key ObjectKey) bool {
	if g.Reason == DeadLetter {
		return j.dead[g.Letter] == key && g.Scope.Has(key)
	}
	return g.Scope.Has(key)
}

func (j *judgement) gapsOf(key ObjectKey) int {
	n := 0
	for i := range j.Gaps {
		if j.covers(&j.Gaps[i], key) {
			n++
		}
	}
	return n
}

// gapAround returns the last gap that contains the revision, or nil if there is none.
func (j *judgement) gapAround(key ObjectKey, rev uint64) *Record {
	for i := len(j.Gaps) - 1; i >= 0; i-- {
		if g := &j.Gaps[i]; j.covers(g, key) && g.From < rev && rev <= g.To {
			return g
		}
	}
	return nil
}

// at returns the version at a revision, or nil if the object did not exist or the selector did not
// match it.
func (j *judgement) at(key ObjectKey, rev uint64) *Version {
	var last *Version
	for i := range j.want[key] {
		switch e := &j.want[key][i]; {
		case e.Rev > rev:
			return last
		case e.Op == Left:
			last = nil
		default:
			last = e.Next
		}
	}
	return last
}

// excused reports whether a gap event accounts for a missing record.
func (j *judgement) excused(e *Expectation) bool {
	if _, dead := j.dead[e.ID]; dead {
		return j.gapOfDead(e)
	}
	if e.Op == Read {
		return e.Optional || j.cutShort(e)
	}
	for i := range j.Gaps {
		g := &j.Gaps[i]
		if g.Reason == DeadLetter || g.Reason == ContentChanged || !g.Scope.Has(e.Key) || e.Rev <= g.From ||
			e.Rev > g.To {
			continue
		}
		if !g.Recovered {
			return true
		}
		from, to := j.at(e.Key, g.From), j.at(e.Key, g.To)
		if (from == nil || from.UID != e.UID) && (to == nil || to.UID != e.UID) {
			return true
		}
	}
	return false
}

// gapOfDead reports whether there is a gap event for this record, which is in the dead letters.
func (j *judgement) gapOfDead(e *Expectation) bool {
	for i := range j.Gaps {
		if g := &j.Gaps[i]; g.Letter == e.ID && g.Scope.Has(e.Key) && (e.Op == Deleted || g.To == e.Rev) {
			return true
		}
	}
	return false
}

// cutShort reports whether a gap during the read's snapshot excuses the read: the agent may not
// have read an object before it changed in the gap.
func (j *judgement) cutShort(e *Expectation) bool {
	for i := range j.Gaps {
		g := &j.Gaps[i]
		if g.Reason == DeadLetter || g.Reason == ContentChanged || !g.Scope.Has(e.Key) {
			continue
		}
		started := j.seen[g.Scope.Text+"/"+e.SnapshotID+"/started"+historyEnd(g.History)]
		completed := j.seen[g.Scope.Text+"/"+e.SnapshotID+"/completed"+historyEnd(g.History)]
		if started != nil && started.Position < g.Position && (completed == nil || g.Position < completed.Position) {
			now := j.at(e.Key, g.To)
			return now == nil || now.Rev != e.Rev
		}
	}
	return false
}

// inferred judges a record that the agent inferred by comparing lists. It leads from the consumer's
// state to a version of the history.
func (j *judgement) inferred(rec *Record, e *Expectation, s *state) {
	g := j.gapAround(rec.Key, e.Rev)
	if g == nil {
		j.fault(rec, "inferred", "op %s is inferred, and no gap event before it has revision %d in it", rec.Op, e.Rev)
		return
	}
	known := s != nil && s.after == Present
	// The agent may have known only the state at the beginning of the gap, which is older than that
	// on the bus.
	switch base := j.at(rec.Key, g.From); {
	case base != nil && (!known || s.rev != base.Rev) && rec.PrevRev == base.Rev:
		known, s = true, &state{
			rev:    base.Rev,
			uid:    base.UID,
			after:  Present,
			digest: base.Digest,
		}
		j.content(rec, "before", rec.Before, Present, rec.BeforeDigest, base)
	case rec.PrevRev == 0 && (base == nil || base.UID != rec.UID):
		// No object, or one whose deletion the agent has reported.
		known = false
	}
	switch rec.Op {
	case Deleted:
		if !known || s.uid != rec.UID {
			j.fault(rec, "inferred", "deletion of an object that the bus does not know")
		}
		if rec.Rev < e.Rev || rec.Rev > g.To {
			j.fault(rec, "inferred", "deletion at %d, but it was at %d and the gap ends at %d", rec.Rev, e.Rev, g.To)
		}
		j.content(rec, "after", rec.After, Null, rec.AfterDigest, nil)
	case Left:
		j.content(rec, "after", rec.After, Absent, rec.AfterDigest, nil)
	case Created, Updated, Entered:
		if known != (rec.Op == Updated) {
			j.fault(rec, "inferred", "op %s, but whether the bus knows the object is %t", rec.Op, known)
		}
		if rec.Op == Updated && known && s.uid != rec.UID {
			j.fault(rec, "inferred", "update of %s from an object with the uid %s", rec.UID, s.uid)
		}
		j.content(rec, "after", rec.After, Present, rec.AfterDigest, e.Next)
	default:
		j.fault(rec, "inferred", "op %s cannot be inferred", rec.Op)
	}
	if known && rec.Op != Created && rec.PrevRev != s.rev {
		j.fault(rec, "previousResourceVersion", "inferred op %s: previousResourceVersion is %d, the last record has %d",
			rec.Op, rec.PrevRev, s.rev)
	}
}

// untoldDeletion returns the expected deletion for a record that only reports that the object left
// the selector.
func (j *judgement) untoldDeletion(rec *Record) *Expectation {
	for i := range j.want[rec.Key] {
		if e := &j.want[rec.Key][i]; rec.Op == Left && e.Op == Deleted && e.UID == rec.UID && e.Rev == rec.Rev {
			return e
		}
	}
	return nil
}

// untold judges a record of a change whose op could not be determined.
func (j *judgement) untold(rec *Record, e *Expectation) {
	j.Untold++
	switch {
	case rec.Op == Left && (e.Op == Left || e.Op == Deleted):
		j.seen[e.ID] = rec
		j.content(rec, "before", rec.Before, Present, rec.BeforeDigest, e.Prev)
		j.content(rec, "after", rec.After, Absent, rec.AfterDigest, nil)
	case rec.Op == Entered && (e.Op == Entered || e.Op == Created):
		j.content(rec, "before", rec.Before, Absent, rec.BeforeDigest, nil)
		j.content(rec, "after", rec.After, Present, rec.AfterDigest, e.Next)
	default:
		j.fault(rec, "inferred", "op %s is inferred, want %s", rec.Op, e.Op)
	}
}

// inferredGone returns the expected left for a record inferred from a list that no longer had the
// object. The record is left, or deleted if the object was then deleted outside the selector. Nil:
// the object did not leave.
func (j *judgement) inferredGone(rec *Record) *Expectation {
	g := j.gapAround(rec.Key, rec.Rev)
	if !rec.Inferred || rec.Op != Left && rec.Op != Deleted || g == nil {
		return nil
	}
	var last *Expectation
	for i := range j.want[rec.Key] {
		if e := &j.want[rec.Key][i]; e.UID == rec.UID && e.Rev <= rec.Rev {
			last = e
		}
	}
	if last == nil || last.Op != Left || last.Rev <= g.From {
		return nil
	}
	return last
}
