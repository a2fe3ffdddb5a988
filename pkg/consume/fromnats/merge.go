package fromnats

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A consumer with several filters makes the server compare every subject, and no permission
// confines it. So each filter has a consumer, and a merge restores the order of the stream:
//
//	filter   in hand   horizon
//	a        12          8        12 is the lowest, and b and c have looked further:
//	b        -          30        it is the next record.
//	c        19         17        Then it must be known whether a has one before 19.
//
// A consumer's horizon is the sequence of its last record, or that of a heartbeat (see pull).

// mostFilters limits the consumers of a reader. Instead of more filters it uses one wildcard, and
// drops other records itself.
const mostFilters = 64

// merge reads several consumers of a stream in the stream's order. It belongs to one goroutine.
type merge struct {
	pulls   []*pull
	filters []string // of the records to keep; nil: all
	wake    chan struct{}
	moved   time.Time // when a record was taken, or a horizon moved
	// searches is for how long a server may search the stream before the first message of a
	// consumer, beside the usual limits.
	searches time.Duration
}

// gap is a range of sequences that the server has passed without a record for the reader.
type gap struct{ from, to uint64 }

// advance takes into hand what has arrived. It returns the gaps in which records may have been
// removed before the server looked at them.
func (m *merge) advance(before uint64) (gaps []gap, err error) {
	for _, p := range m.pulls {
		for p.head == nil {
			from, pending := p.horizon, p.pending
			if err := p.advance(before); err != nil {
				return gaps, err
			}
			reached, left := p.horizon, uint64(0) // a heartbeat comes when no record is left
			if p.head != nil {
				reached, left = p.head.seq-1, p.head.pending+1
			}
			if reached > from && (m.filters == nil || left < pending || p.dried) {
				gaps = append(gaps, gap{from + 1, reached})
			}
			if p.head != nil || reached > from {
				m.moved = time.Now()
			}
			if p.head == nil {
				if reached > from {
					p.pending, p.dried = 0, false
				}
				break
			}
			if !m.isWanted(p.head) {
				p.takeHead()
			}
		}
	}
	return gaps, nil
}

// isWanted reports whether a record matches the filters: one wildcard may have replaced them.
func (m *merge) isWanted(r *record) bool {
	if len(m.filters) <= mostFilters {
		return true
	}
	for _, f := range m.filters {
		if matchesFilter(r.Subject, f) {
			return true
		}
	}
	return false
}

// take returns the next record of the stream, nil if it is not certain yet which one that is.
func (m *merge) take() *record {
	p := m.lowest()
	if p == nil || m.waitsFor(p.head.seq) != nil {
		return nil
	}
	r := p.takeHead()
	for _, other := range m.pulls { // filters may overlap
		if other.head != nil && other.head.seq == r.seq {
			other.takeHead()
		}
	}
	m.moved = time.Now()
	return r
}

// lowest returns the pull with the first record in hand, nil if none has one.
func (m *merge) lowest() *pull {
	var lowest *pull
	for _, p := range m.pulls {
		if p.head != nil && (lowest == nil || p.head.seq < lowest.head.seq) {
			lowest = p
		}
	}
	return lowest
}

// waitsFor returns a pull that may still deliver a record before seq, nil if there is none.
func (m *merge) waitsFor(seq uint64) *pull {
	for _, p := range m.pulls {
		if p.head == nil && p.horizon < seq {
			return p
		}
	}
	return nil
}

// hasPassed reports whether no record up to end will come.
func (m *merge) hasPassed(end uint64) bool {
	for _, p := range m.pulls {
		switch {
		case p.head != nil && p.head.seq <= end:
			return false
		case p.head == nil && p.horizon < end:
			return false
		}
	}
	return true
}

// reached returns the sequence up to which all records were taken.
func (m *merge) reached() uint64 {
	var lowest uint64
	for k, p := range m.pulls {
		at := p.horizon
		if p.head != nil {
			at = p.head.seq - 1
		}
		if k == 0 || at < lowest {
			lowest = at
		}
	}
	return lowest
}

// isCaughtUp reports whether no record was left when the servers last said so.
func (m *merge) isCaughtUp() bool {
	for _, p := range m.pulls {
		if p.head != nil || p.pending > 0 {
			return false
		}
	}
	return true
}

// request keeps enough requests open. every is the interval of their heartbeats.
func (m *merge) request(every time.Duration) error {
	waiting := uint64(0)
	if p := m.lowest(); p != nil {
		waiting = p.head.seq
	}
	now := time.Now()
	for _, p := range m.pulls {
		if err := p.refill(every); err != nil {
			return err
		}
		if every <= quickHeartbeat || p.head != nil || p.horizon >= waiting {
			continue
		}
		if err := p.requestQuick(now); err != nil {
			return err
		}
	}
	return nil
}

// laggard returns the pull whose server has looked least far.
func (m *merge) laggard() *pull {
	var last *pull
	for _, p := range m.pulls {
		if p.head == nil && (last == nil || p.horizon < last.horizon) {
			last = p
		}
	}
	return last
}

// silentAt returns the time at which the first pull will be silent.
func (m *merge) silentAt() time.Time {
	var first time.Time
	for _, p := range m.pulls {
		at := p.silentAt()
		if !p.hasArrived() {
			at = at.Add(m.searches)
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// grace returns for how much longer than usual the servers may look no further.
func (m *merge) grace() time.Duration {
	for _, p := range m.pulls {
		if !p.hasArrived() {
			return m.searches
		}
	}
	return 0
}

func (m *merge) stop() {
	for _, p := range m.pulls {
		p.stop()
	}
}

// serverFilters returns the filters to request from the server for those of a reader.
func serverFilters(filters []string) []string {
	switch {
	case len(filters) == 0:
		return []string{""}
	case len(filters) > mostFilters:
		return []string{widestFilter(filters)}
	}
	return filters
}

// checkFilters returns an error if a filter is not one: a request for it has no answer.
func checkFilters(filters []string) error {
	for _, f := range filters {
		tokens := strings.Split(f, ".")
		for k, token := range tokens {
			if token == "" || strings.ContainsAny(token, " \t\r\n") || token == ">" && k < len(tokens)-1 {
				return fmt.Errorf("subject %q: want tokens separated by dots, with * for one of them, or > at the end",
					f)
			}
		}
	}
	return nil
}

// widestFilter returns a wildcard that matches all subjects that the filters match.
func widestFilter(filters []string) string {
	var common []string
	hasTail := false
	for k, f := range filters {
		tokens := strings.Split(f, ".")
		if k == 0 {
			common = slices.Clone(tokens)
		}
		hasTail = hasTail || len(tokens) != len(common) || tokens[len(tokens)-1] == ">"
		common = common[:min(len(common), len(tokens))]
		for i := range common {
			if common[i] != tokens[i] {
				common[i] = "*"
			}
		}
	}
	if hasTail { // it matches one token or more
		common[len(common)-1] = ">"
	}
	return strings.Join(common, ".")
}

// matchesFilter reports whether a subject matches a filter, which may have wildcards.
func matchesFilter(subject, filter string) bool {
	for {
		f, moreFilter, filterGoesOn := strings.Cut(filter, ".")
		if f == ">" {
			return true
		}
		s, moreSubject, subjectGoesOn := strings.Cut(subject, ".")
		if f != "*" && f != s || filterGoesOn != subjectGoesOn {
			return false
		}
		if !filterGoesOn {
			return true
		}
		filter, subject = moreFilter, moreSubject
	}
}

// errLag describes a server that does not look further.
func (m *merge) errLag(end uint64) error {
	p := m.laggard()
	if p == nil {
		return fmt.Errorf("no server has looked up to record %d", end)
	}
	return fmt.Errorf(
		"server %s has looked up to record %d of %d, and goes no further: it lags behind the stream's leader",
		p.server(), p.horizon, end)
}
