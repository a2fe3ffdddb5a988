package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/duration"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Moment is a point of a record: a time, a resourceVersion, or now. The zero value is the end of
// the record, however old that is.
type Moment struct {
	kind momentKind
	time time.Time // of at and now
	rv   point     // of atVersion
	// since, unless zero, is the beginning of a span that ends at time: see Between.
	since time.Time
}

type momentKind uint8

const (
	atEnd momentKind = iota
	atTime
	atVersion
	atNow
)

// At returns the moment of a time.
func At(t time.Time) Moment { return Moment{kind: atTime, time: t} }

// Between returns the span of all moments from since to until. A Fold of a span returns the
// versions up to until. It is at best as certain as the worst of these moments: it is Exact only if
// each of them is.
func Between(since, until time.Time) Moment { return Moment{kind: atTime, time: until, since: since} }

// begin returns the first time of a span. Any other time is its own begin.
func (m Moment) begin() time.Time {
	if m.since.IsZero() {
		return m.time
	}
	return m.since
}

// end returns the last moment of a span. Any other moment is its own end.
func (m Moment) end() Moment {
	m.since = time.Time{}
	return m
}

// AtVersion returns the moment at which etcd reached a resourceVersion, in a history as in
// consume.Event.History.
func AtVersion(resourceVersion uint64, history uint32) Moment {
	return Moment{kind: atVersion, rv: point{history, resourceVersion}}
}

// Now returns the end of the record, which is judged at the time now.
func Now(now time.Time) Moment { return Moment{kind: atNow, time: now} }

// Time returns the time of a moment, zero if it is a resourceVersion or the end of the record.
func (m Moment) Time() time.Time { return m.time }

// ResourceVersion returns the resourceVersion and the history of the moment, if it has them.
func (m Moment) ResourceVersion() (resourceVersion uint64, history uint32, ok bool) {
	return m.rv.seq, m.rv.history, m.kind == atVersion
}

// IsNow reports whether the moment is now or the end of the record, so that it includes every
// event.
func (m Moment) IsNow() bool { return m.kind == atNow || m.kind == atEnd }

// Includes reports whether an event is at the moment or before it: by its time, or by its
// resourceVersion.
func (m Moment) Includes(e *consume.Event) bool {
	switch m.kind {
	case atTime:
		return !e.Time.After(m.time)
	case atVersion:
		if e.Progress != nil {
			return m.includesClaims(e.Progress)
		}
		at := pointOf(e)
		return at.seq > 0 && !m.rv.isBefore(at)
	}
	return true
}

// includesClaims reports whether the resourceVersions of all scopes of a progress are at the moment
// or before it, and at least one scope has one.
func (m Moment) includesClaims(p *consume.Progress) bool {
	hasAny := false
	for i := range p.Scopes {
		at := claimOf(&p.Scopes[i]).at
		if m.rv.isBefore(at) {
			return false
		}
		hasAny = hasAny || at.seq > 0
	}
	return hasAny
}

// After reports whether m is known to be after n: both are times, or both are resourceVersions.
func (m Moment) After(n Moment) bool {
	switch {
	case m.kind == atVersion && n.kind == atVersion:
		return n.rv.isBefore(m.rv)
	case n.kind == atTime:
		return m.time.After(n.time)
	}
	return false
}

// String returns the moment in a form that ParseMoment reads.
func (m Moment) String() string {
	switch m.kind {
	case atTime:
		return m.time.Format(time.RFC3339Nano)
	case atVersion:
		if m.rv.history > 0 {
			return fmt.Sprintf("rv:%d/h%d", m.rv.seq, m.rv.history)
		}
		return fmt.Sprintf("rv:%d", m.rv.seq)
	}
	return "now"
}

const momentForms = "want a time like 2026-11-20T14:05:00Z, 14:05 or 'yesterday 14:05', " +
	"a day like 2026-11-20, yesterday or today, " +
	"a duration before now like 2h or 7d, a resourceVersion like rv:48211, or now"

// ParseMoment reads a moment as people type it; now is the present, in the time zone that they
// mean:
//
//	2026-11-20T14:05:00Z  RFC 3339
//	14:05, 14:05:30       today
//	yesterday 14:05       also with today, or a date: 2026-11-20 14:05
//	yesterday             the beginning of a day: yesterday, today or a date
//	2h, 1h30m             before now
//	rv:48211              a resourceVersion; rv:48211/h1 after etcd was restored once
//	now
//
// A moment in the future is an error.
func ParseMoment(s string, now time.Time) (Moment, error) {
	s = strings.TrimSpace(s)
	if s == "now" {
		return Now(now), nil
	}
	if rv, ok := strings.CutPrefix(s, "rv:"); ok {
		return parseVersion(s, rv)
	}
	t, err := ParseTime(s, now)
	if err != nil {
		return Moment{}, fmt.Errorf("moment %q: %w", s, err)
	}
	if t.After(now) {
		hint := ""
		if !strings.ContainsAny(s, " -") { // neither a day nor RFC 3339
			hint = fmt.Sprintf(": use 'yesterday %s' for the day before", s)
		}
		return Moment{}, fmt.Errorf("moment %q is in the future: it is %s%s", s, now.Format(time.RFC3339), hint)
	}
	return At(t), nil
}

// ParseTime reads a moment that is a time: neither now nor a resourceVersion. It may be in the
// future.
//
// A time without an offset may exist twice, because clocks were put back. Then it is the first of
// the two. It may not exist, because clocks were put forward. Then it is the time at which that
// happened.
func ParseTime(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	if wall, ok := wallTime(s, now); ok {
		at, _ := onClock(wall, now.Location())
		return at, nil
	}
	d, err := duration.Parse(s)
	switch {
	case err != nil:
		return time.Time{}, errors.New(momentForms)
	case d < 0 || strings.HasPrefix(s, "+"):
		return time.Time{}, errors.New("want a duration before now without a sign, like 2h")
	}
	return now.Add(-d), nil
}

// Remark says how ParseTime reads a time that does not exist, or exists twice, on the clocks of
// now's time zone; "": it exists once.
func Remark(s string, now time.Time) string {
	wall, ok := wallTime(strings.TrimSpace(s), now)
	if !ok {
		return ""
	}
	_, remark := onClock(wall, now.Location())
	return remark
}

// wallTime reads a date and a time of day without an offset, as what a clock shows: in UTC.
func wallTime(s string, now time.Time) (wall time.Time, ok bool) {
	day, clock, _ := strings.Cut(s, " ")
	if strings.Contains(day, ":") {
		day, clock = "today", s
	}
	year, month, d, ok := dateOf(day, now)
	if !ok {
		return time.Time{}, false
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.Parse(layout, cmp.Or(strings.TrimSpace(clock), "00:00"))
		if err == nil {
			return time.Date(year, month, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC), true
		}
	}
	return time.Time{}, false
}

// onClock returns the time at which the clocks of a zone show what wall shows in UTC. If they show
// it twice, it is the first time. If they never do, it is the time at which they were put forward.
// In both cases, remark says so.
func onClock(wall time.Time, zone *time.Location) (at time.Time, remark string) {
	h, m, s := wall.Clock()
	at = time.Date(wall.Year(), wall.Month(), wall.Day(), h, m, s, wall.Nanosecond(), zone)
	name := zone.String()
	if zone == time.Local && name == "Local" {
		name = "the local time zone"
	}
	start, end := at.ZoneBounds()
	shows := func(t time.Time) time.Time { // in UTC, as wall
		_, offset := t.In(zone).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	if shown := shows(at); !shown.Equal(wall) {
		jump := start
		if shown.Before(wall) {
			jump = end
		}
		jump = jump.In(zone)
		return jump, fmt.Sprintf("%s does not exist on %s in %s, where clocks were put forward to %s: taken as %s",
			wall.Format(time.TimeOnly), wall.Format(time.DateOnly), name, jump.Format(time.TimeOnly),
			jump.Format(time.RFC3339))
	}
	var others []time.Time // in the periods before and after this one
	if !start.IsZero() {
		others = append(others, start.Add(-1))
	}
	if !end.IsZero() {
		others = append(others, end)
	}
	first, second := at, at
	for _, other := range others {
		_, offset := other.In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		if t.Equal(at) || !shows(t).Equal(wall) {
			continue
		}
		if t.Before(at) {
			first = t
		} else {
			second = t
		}
	}
	if first.Equal(second) {
		return at, ""
	}
	return first,
		fmt.Sprintf("%s exists twice on %s in %s, where clocks were put back: taken as the first, %s, and not as %s",
			wall.Format(time.TimeOnly), wall.Format(time.DateOnly), name, first.Format(time.RFC3339),
			second.Format(time.RFC3339))
}

// dateOf returns the date of today, yesterday or a text like 2026-11-20.
func dateOf(day string, now time.Time) (year int, month time.Month, d int, ok bool) {
	t, err := now, error(nil)
	switch day {
	case "today":
	case "yesterday":
		t = now.AddDate(0, 0, -1)
	default:
		t, err = time.Parse(time.DateOnly, day)
	}
	year, month, d = t.Date()
	return year, month, d, err == nil
}

func parseVersion(s, rv string) (Moment, error) {
	number, history, restored := strings.Cut(rv, "/h")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || seq == 0 {
		return Moment{},
			fmt.Errorf("moment %q: want a resourceVersion like rv:48211, or rv:48211/h1 after a restore of etcd", s)
	}
	if !restored {
		return AtVersion(seq, 0), nil
	}
	h, err := strconv.ParseUint(history, 10, 32)
	if err != nil {
		return Moment{}, fmt.Errorf("moment %q: want the number of restores after /h, like rv:48211/h1", s)
	}
	return AtVersion(seq, uint32(h)), nil
}
