package oracle

// covers tells whether a gap may be one of the object's. That behind a dead letter is of the dead letter's object alone,
// though the whole scope hears of it.
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

// gapAround is the last gap in which the change happened, nil if none.
func (j *judgement) gapAround(key ObjectKey, rev uint64) *Record {
	for i := len(j.Gaps) - 1; i >= 0; i-- {
		if g := &j.Gaps[i]; j.covers(g, key) && g.From < rev && rev <= g.To {
			return g
		}
	}
	return nil
}

// at is the version that there was at a revision and that the agent could know of, nil if none.
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

// excused tells whether a gap event accounts for a record that is missing.
func (j *judgement) excused(e *Expectation) bool {
	if _, dead := j.dead[e.ID]; dead {
		return j.gapOfDead(e)
	}
	if e.Op == Read {
		return e.Optional || j.cutShort(e)
	}
	for i := range j.Gaps {
		g := &j.Gaps[i]
		if g.Reason == DeadLetter || !g.Scope.Has(e.Key) || e.Rev <= g.From || e.Rev > g.To {
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

// gapOfDead tells whether a gap says that this record is missing, which went to the dead letters.
func (j *judgement) gapOfDead(e *Expectation) bool {
	for i := range j.Gaps {
		if g := &j.Gaps[i]; g.Letter == e.ID && g.Scope.Has(e.Key) && (e.Op == Deleted || g.To == e.Rev) {
			return true
		}
	}
	return false
}

// cutShort tells whether a gap came between the begin of the read's snapshot and its end: what changed in the gap was not
// necessarily read before.
func (j *judgement) cutShort(e *Expectation) bool {
	for i := range j.Gaps {
		g := &j.Gaps[i]
		if g.Reason == DeadLetter || !g.Scope.Has(e.Key) {
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

// inferred judges a record that a comparison of lists gave: it leads from what the consumer knew to a version that was.
func (j *judgement) inferred(rec *Record, e *Expectation, s *state) {
	g := j.gapAround(rec.Key, e.Rev)
	if g == nil {
		j.fault(rec, "inferred", "op %s is inferred, and no gap event before it has revision %d in it", rec.Op, e.Rev)
		return
	}
	known := s != nil && s.after == Present
	// Its agent may have known less than the bus: no more than what there was where the gap begins.
	switch base := j.at(rec.Key, g.From); {
	case base != nil && (!known || s.rev != base.Rev) && rec.PrevRev == base.Rev:
		known, s = true, &state{rev: base.Rev, uid: base.UID, after: Present, digest: base.Digest}
		j.content(rec, "before", rec.Before, Present, rec.BeforeDigest, base)
	case rec.PrevRev == 0 && (base == nil || base.UID != rec.UID): // Nothing, or what it has said to be deleted.
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
		j.fault(rec, "previousResourceVersion", "inferred op %s: previousResourceVersion is %d, the last record has %d", rec.Op, rec.PrevRev, s.rev)
	}
}

// untoldDeletion is the expectation that an object was deleted, for a record which says no more than that it left.
func (j *judgement) untoldDeletion(rec *Record) *Expectation {
	for i := range j.want[rec.Key] {
		if e := &j.want[rec.Key][i]; rec.Op == Left && e.Op == Deleted && e.UID == rec.UID && e.Rev == rec.Rev {
			return e
		}
	}
	return nil
}

// untold judges a record of a change of which nobody could tell what it was.
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

// inferredGone is the expectation that an object left the selector, for a record which says that a list did not have the
// object any more: it left, or left and was deleted outside, as of the list. Nil where it did not leave.
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
