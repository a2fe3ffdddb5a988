package admin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// Lines returns the status for people. Rates are computed from the difference to before, an earlier
// status, which may be nil.
func (s *Status) Lines(wide bool, before *Status) []terminal.Line {
	out := []terminal.Line{s.headline()}
	for _, k := range s.Checks {
		if !k.OK {
			look := terminal.Red
			if k.Aside {
				look = terminal.Yellow
			}
			out = append(out, terminal.Line{{
				Style: look,
				Text:  fmt.Sprintf("! %s: %s (for %s)", k.Name, k.Detail, terminal.Duration(s.Now.Sub(k.Since))),
			}})
		}
	}
	for _, text := range s.Clock.problems() {
		out = append(out, terminal.Line{{Style: terminal.Yellow, Text: "! clock: " + text}})
	}
	add := func(name, text string) {
		out = append(out, terminal.Line{{Style: terminal.Dim, Text: fmt.Sprintf("%-12s", name)}, {Text: text}})
	}
	if s.Leader != nil {
		add("leader", s.leaderText())
	}
	if s.Config != nil {
		add("config", s.configText())
		for _, p := range s.Config.Problems {
			out = append(out, terminal.Line{{Style: terminal.Yellow, Text: strings.Repeat(" ", 12) + p}})
		}
	}
	if s.Standby {
		return out // a standby has no other state
	}
	add("bus", s.busText())
	add("queue", s.queueText())
	add("checkpoint", s.checkpointText())
	add("published", s.publishedText(before))
	add("watching", s.scopesText())
	for i := range s.Unmatched {
		u := &s.Unmatched[i]
		out = append(out, terminal.Line{{
			Style: terminal.Yellow,
			Text: fmt.Sprintf("! %s.redact: %s has matched nothing for %s: is it misspelled?",
				u.Rule, u.Path, terminal.Duration(s.Now.Sub(u.Since))),
		}})
	}
	if len(s.Scopes) == 0 {
		return out
	}
	out = append(out, nil)
	out = append(out, s.table(wide)...)
	if s.Omitted > 0 {
		out = append(out, terminal.Line{{
			Style: terminal.Dim,
			Text:  fmt.Sprintf("and %s more: -o wide", wording.Count(s.Omitted)),
		}})
	}
	return out
}

// problems returns what is wrong with the clock.
func (c *ClockStatus) problems() (out []string) {
	if c.Differs {
		where := "ahead of"
		if c.OffsetSeconds < 0 {
			where = "behind"
		}
		out = append(out,
			fmt.Sprintf("it is %s %s the API server's: synchronize both",
				terminal.Duration(ofSeconds(math.Abs(c.OffsetSeconds))), where))
	}
	if c.AheadSeconds >= 1 {
		out = append(out,
			fmt.Sprintf("it was ahead, or was set back: the times of events stand still for %s",
				terminal.Duration(ofSeconds(c.AheadSeconds))))
	}
	return out
}

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s *Status) headline() terminal.Line {
	state, look := "ready", terminal.Green
	switch {
	case s.Standby && s.Ready:
		state, look = "standing by", terminal.Cyan
	case !s.Ready:
		state, look = "not ready", terminal.Red
	}
	what := "kubecdc " + s.Version
	if s.Mode != "" && s.Mode != "cluster" {
		what += ", mode " + s.Mode
	}
	switch {
	case s.Cluster != "" && s.Cluster != s.ClusterUID && s.ClusterUID != "":
		what += ", cluster " + s.Cluster + " (" + s.ClusterUID + ")"
	case s.Cluster != "":
		what += ", cluster " + s.Cluster
	}
	return terminal.Line{{Style: terminal.Bold, Text: what}, {
		Text: fmt.Sprintf(", %s, up %s: ", s.APIServer, terminal.Duration(s.Now.Sub(s.Started))),
	}, {Style: look, Text: state}}
}

func (s *Status) leaderText() string {
	l := s.Leader
	switch {
	case l.Paused:
		return fmt.Sprintf("this agent, epoch %d, but it cannot renew its Lease: publishing pauses", l.Epoch)
	case l.Leading:
		return fmt.Sprintf("this agent, epoch %d", l.Epoch)
	}
	return fmt.Sprintf("%s, epoch %d; this agent is a standby", cmp.Or(l.Holder, "none"), l.Epoch)
}

func (s *Status) configText() string {
	c := s.Config
	text := fmt.Sprintf("%s, sha256 %s, in force for %s", c.File, ShortHash(c.SHA256),
		terminal.Duration(s.Now.Sub(c.Since)))
	switch {
	case c.Taking != nil:
		text += fmt.Sprintf("; the changed file is being applied for %s", terminal.Duration(s.Now.Sub(*c.Taking)))
	case c.Refused != nil:
		text += fmt.Sprintf("; the changed file is rejected for %s:", terminal.Duration(s.Now.Sub(*c.Refused)))
	}
	return text
}

func (s *Status) busText() string {
	state := "not connected"
	if s.Bus.Connected {
		state = "connected"
	}
	text := fmt.Sprintf("%s: %s for %s", s.Bus.Name, state, terminal.Duration(s.Now.Sub(s.Bus.Since)))
	if s.Bus.Throttled != "" {
		text += "; throttled by " + s.Bus.Throttled
	}
	if l := s.Bus.Log; l != nil && l.Unknown > 0 {
		text += fmt.Sprintf("; the identity of %s of %s logs is unknown", wording.Count(l.Unknown),
			wording.Count(l.Logs))
		if l.Problem != "" {
			text += ": " + l.Problem
		}
	}
	return text
}

func (s *Status) queueText() string {
	q := &s.Queue
	text := fmt.Sprintf("%s of %s events, %s of %s", wording.Count(q.Events), wording.Count(q.MaxEvents),
		terminal.Size(q.Bytes), terminal.Size(q.MaxBytes))
	if q.Events > 0 {
		text += fmt.Sprintf("; %s in flight, the oldest is %s old", wording.Count(q.InFlight),
			briefly(q.OldestSeconds))
	}
	if q.Waiting > 0 {
		text += fmt.Sprintf("; %s informers wait for room", wording.Count(q.Waiting))
	}
	return text
}

func (s *Status) checkpointText() string {
	switch c := s.Checkpoint; {
	case c == nil:
		return "none"
	case c.Saved == nil:
		return c.Place + ", not saved yet"
	default:
		return fmt.Sprintf("%s, saved %s ago", c.Place, terminal.Duration(s.Now.Sub(*c.Saved)))
	}
}

func (s *Status) publishedText(before *Status) string {
	p := &s.Published
	text := fmt.Sprintf("%s events, %s", wording.Count(int(p.Events)), terminal.Size(int64(p.Bytes)))
	if before != nil {
		if passed := s.Now.Sub(before.Now).Seconds(); passed > 0 && p.Events >= before.Published.Events {
			text += fmt.Sprintf("; %s/s now", wording.Count(int(float64(p.Events-before.Published.Events)/passed+0.5)))
		}
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{{p.Retries, "retries"}, {p.Duplicates, "copies"}, {p.Shortened, "shortened"}, {p.DeadLetters, "dead letters"}} {
		if c.n > 0 {
			text += fmt.Sprintf("; %s %s", wording.Count(int(c.n)), c.what)
		}
	}
	return text
}

func (s *Status) scopesText() string {
	i := &s.Informers
	text := wording.Count(i.Scopes) + " scopes"
	if i.Scopes > 0 {
		text += ": " + Counts(i.Phases)
	}
	unwell := maps.Clone(i.Health)
	delete(unwell, informer.HealthOK.String())
	if len(unwell) > 0 {
		text += "; " + Counts(unwell)
	}
	text += fmt.Sprintf("; %s objects kept in %s", wording.Count(i.Objects), terminal.Size(i.Bytes))
	if i.Pending > 0 {
		text += fmt.Sprintf("; %s pending", wording.Count(i.Pending))
	}
	if len(i.NoBookmarks) > 0 {
		text += "; no bookmarks of " + informer.Few(i.NoBookmarks)
	}
	return text
}

// Counts returns each name with its number, sorted by name.
func Counts(byName map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, wording.Count(byName[name])+" "+name)
	}
	return strings.Join(out, ", ")
}

// table returns a header and a line for each scope.
func (s *Status) table(wide bool) []terminal.Line {
	head := []string{"SCOPE", "PHASE", "HEALTH", "WATCH", "LAG", "OBJECTS", "KEPT", "PENDING"}
	if wide {
		head = append(head, "LAST EVENT", "RESUMED", "FAILURES")
	}
	right := map[int]bool{3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 10: true}
	rows := make([][]string, 0, len(s.Scopes))
	problems := false
	for i := range s.Scopes {
		rows = append(rows, s.row(&s.Scopes[i], wide))
		problems = problems || s.Scopes[i].about() != ""
	}
	widths := make([]int, len(head))
	for _, r := range append([][]string{head}, rows...) {
		for c := range head {
			widths[c] = max(widths[c], utf8.RuneCountInString(r[c]))
		}
	}
	pad := func(c int, text string, last bool) string {
		space := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(text))
		switch {
		case right[c]:
			text = space + text
		case !last:
			text += space
		}
		if !last {
			text += "   "
		}
		return text
	}
	line := func(cells []string, look terminal.Style, phase terminal.Style, problem string) terminal.Line {
		var l terminal.Line
		for c := range head {
			style := look
			if c == 1 || c == 2 {
				style = phase
			}
			l = append(l, terminal.Span{Style: style, Text: pad(c, cells[c], c == len(head)-1 && problem == "")})
		}
		if problem != "" {
			l = append(l, terminal.Span{Style: phase, Text: problem})
		}
		return l
	}
	about := ""
	if problems {
		about = "PROBLEM"
	}
	out := []terminal.Line{line(head, terminal.Dim, terminal.Dim, about)}
	for i, r := range rows {
		out = append(out, line(r, terminal.Plain, lookOf(&s.Scopes[i]), s.Scopes[i].about()))
	}
	return out
}

func (s *Status) row(sc *ScopeStatus, wide bool) []string {
	watch := "-"
	if sc.SilenceSeconds > 0 {
		watch = terminal.Duration(time.Duration(sc.SilenceSeconds * float64(time.Second)))
	}
	lag := "-"
	if sc.LagSeconds > 0 {
		lag = briefly(sc.LagSeconds)
	}
	cells := []string{
		sc.Scope, sc.Phase, sc.Health, watch, lag, wording.Count(sc.Objects), terminal.Size(int64(sc.Bytes)),
		wording.Count(sc.Pending),
	}
	if wide {
		seen, resumed := "-", "no"
		if sc.Seen != nil {
			seen = terminal.Duration(s.Now.Sub(*sc.Seen)) + " ago"
		}
		if sc.Resumed {
			resumed = "yes"
		}
		cells = append(cells, seen, resumed, strconv.Itoa(sc.Failures))
	}
	return cells
}

// about returns the problem of a scope, or what is peculiar about it.
func (sc *ScopeStatus) about() string { return cmp.Or(withoutRequests(sc.Error), sc.Note) }

// withoutRequests removes the URLs of requests from an error, because the scope implies them.
func withoutRequests(text string) string {
	return regexp.MustCompile(`\b[A-Z][a-z]+ "https?://[^"]*": `).ReplaceAllString(text, "")
}

// lookOf returns the style of a scope.
func lookOf(sc *ScopeStatus) terminal.Style {
	switch severity(sc.Phase, sc.Health) {
	case 0:
		return terminal.Green
	case 1, 2:
		return terminal.Yellow
	}
	return terminal.Red
}

// briefly formats seconds, as milliseconds if below one second.
func briefly(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return terminal.Duration(d)
}

// ShortHash returns the prefix of a hash that people compare.
func ShortHash(hash string) string { return hash[:min(12, len(hash))] }
