package console

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/sequence"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// alarm is the style of lines that must not be overlooked.
const alarm = terminal.Style("1;31")

func opStyle(op consume.Op) terminal.Style {
	switch op {
	case consume.Created:
		return terminal.Green
	case consume.Updated:
		return terminal.Yellow
	case consume.Deleted:
		return terminal.Red
	case consume.Read:
		return terminal.Dim
	case consume.Entered, consume.Left:
	}
	return terminal.Cyan
}

// opWord returns the word for an op, and one that is not known as it is.
func opWord(op consume.Op) string {
	return cmp.Or(op.Word(), clean(string(op)))
}

// shownResource returns the resource as people write it: with its group, unless that is one of
// Kubernetes' own.
func shownResource(e *consume.Event) string {
	if builtin(e.Group()) {
		return e.Resource
	}
	return e.GroupResource()
}

func shownName(e *consume.Event) string {
	if e.Namespace == "" {
		return e.Name
	}
	return e.Namespace + "/" + e.Name
}

// putEvent appends the text of e.
func (p *Printer) putEvent(e *consume.Event) {
	if e.Data == nil {
		p.putStream(e)
		return
	}
	style := terminal.Plain
	if e.Op == consume.Read {
		style = terminal.Dim
	}
	p.beginLine(e.Time, e.Op, opWord(e.Op), style)
	resource, name := shownResource(e), shownName(e)
	if p.opts.Wide {
		resource = e.GroupResource()
	}
	nameStyle := style
	if p.opts.View == Diff && style == terminal.Plain {
		nameStyle = terminal.Bold
	}
	p.putCell(style, clean(resource), &p.resources, 5)
	p.putCell(nameStyle, clean(name), &p.names, 4)
	if p.opts.Wide {
		p.putColumn(terminal.Dim, "rv="+orDash(e.ResourceVersion), 12)
		p.putColumn(terminal.Dim, "cluster="+orDash(cmp.Or(p.cluster(e), e.Cluster)), 8)
		p.putColumn(terminal.Dim, "uid="+orDash(e.UID), 40)
	}
	if of := p.cluster(e); of != "" && !p.opts.Wide {
		p.putColumn(terminal.Dim, "cluster="+clean(of), 8)
	}
	change := p.compare(e)
	if p.opts.View == Diff {
		p.endWithAuthors(p.appendRemarks(e, nil), p.author(e))
		p.putDetail(e, change)
		return
	}
	text := p.scratch[:0]
	switch {
	case e.DeadLetterReason != "": // nothing is more important
	case change.problem != "":
		text = append(text, change.problem...)
	case change.known:
		text = p.appendBrief(text)
	}
	text = p.appendRemarks(e, text)
	p.scratch = text
	p.endWithAuthors(text, p.author(e))
}

// observedLate is how much later than a change its event may be before a line says when the change
// was. Clocks differ by less.
const observedLate = 10 * time.Second

// author returns the managers that changed an object, and when they did if the event is much later:
// no agent observed the object then.
func (p *Printer) author(e *consume.Event) string {
	who := p.who(e.Data.ChangedBy)
	if !p.opts.Late || p.opts.Wide || e.Op != consume.Updated && e.Op != consume.Created {
		return who // wide has all times
	}
	var last time.Time
	for i := range e.Data.ChangedBy {
		if at := e.Data.ChangedBy[i].Time; at.After(last) {
			last = at
		}
	}
	if last.IsZero() || e.Time.Sub(last) < observedLate {
		return who
	}
	return who + " at " + last.In(p.opts.Location).Format(time.RFC3339)
}

// cluster returns what Options.Cluster says of an event.
func (p *Printer) cluster(e *consume.Event) string {
	if p.opts.Cluster == nil {
		return ""
	}
	return p.opts.Cluster(e)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

// putCell appends a column that grows with its content, up to a share of the width.
func (p *Printer) putCell(style terminal.Style, text string, columns *int, share int) {
	most := 240 / share
	if p.width > 0 {
		most = p.width / share
	}
	if n := width(text); n > *columns {
		*columns = max(*columns, min(n, most))
	}
	p.putColumn(style, text, *columns)
}

// endWithAuthors ends the line with a text and the authors of the change. The authors get the
// columns that the text leaves, or a third of the room if the text is cut anyway. They are omitted
// if they would get fewer than leastWho columns.
func (p *Printer) endWithAuthors(text []byte, who string) {
	room := p.room()
	n := width(text)
	if n > 0 && who != "" && n+2+width(who) > room {
		left := room - n - 2
		if n > room {
			left = room / 3
		}
		if left < leastWho {
			who = ""
		} else {
			who = cut(who, left)
			text = []byte(cut(string(text), room-width(who)-2))
			if short, twice := bytes.CutSuffix(text, []byte(ellipsis+ellipsis)); twice { // after "…" of a path
				text = append(short, ellipsis...)
			}
		}
	}
	p.put(terminal.Plain, string(text))
	if n > 0 && who != "" {
		p.putSpace(2)
	}
	p.put(terminal.Dim, who)
	p.endLine()
}

// who returns the managers that changed an object.
func (p *Printer) who(by []consume.Change) string {
	if len(by) == 0 {
		return ""
	}
	dst := []byte("by ")
	for k := range by {
		if k > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendClean(dst, by[k].Manager)
		if p.opts.Wide {
			dst = append(appendClean(append(dst, " ("...), by[k].Operation), ' ')
			dst = append(by[k].Time.In(p.opts.Location).AppendFormat(dst, time.RFC3339), ')')
		}
	}
	return string(dst)
}

// appendRemarks appends further facts about an object's event.
func (p *Printer) appendRemarks(e *consume.Event, dst []byte) []byte {
	d := e.Data
	add := func(text ...string) {
		if len(dst) > 0 {
			dst = append(dst, ' ')
		}
		dst = append(dst, '(')
		for _, t := range text {
			dst = appendClean(dst, t)
		}
		dst = append(dst, ')')
	}
	if e.DeadLetterReason != "" {
		add("dead letter, not on the bus: ", e.DeadLetterReason)
	}
	switch d.Op {
	case consume.Entered:
		add("began to match the selector")
	case consume.Left:
		add("no longer matches the selector, still exists")
	case consume.Created, consume.Updated, consume.Deleted, consume.Read:
	}
	if d.Inferred {
		add("inferred")
	}
	if d.Redacted != nil && *d.Redacted {
		add("redacted")
	}
	if d.Skipped > 0 {
		switch {
		case p.opts.View == Diff: // detail adds it below, where there is room
		case p.opts.Wide:
			add(withheld(d.Skipped))
		default:
			add(strconv.Itoa(d.Skipped), " withheld before")
		}
	}
	if len(d.Truncated) > 0 {
		add("too large: without ", strings.Join(d.Truncated, ", "))
	}
	if d.DataRef != "" {
		add("whole at ", d.DataRef)
	}
	if p.opts.Wide && d.Snapshot != "" {
		add("snapshot ", d.Snapshot)
	}
	return dst
}

// change is the outcome of a comparison. If known is true, the differ's nodes are the difference.
type change struct {
	known   bool
	problem string // shown if the difference is unknown
}

func exists(object []byte) bool { return len(object) > 0 && object[0] == '{' }

// compare compares the object before e with the object after e.
func (p *Printer) compare(e *consume.Event) change {
	d := e.Data
	p.differ.all = p.opts.Wide
	if d.Op != consume.Updated && (d.Op != consume.Entered || !exists(d.Before)) {
		return change{}
	}
	var err error
	switch {
	case exists(d.Before) && exists(d.After):
		err = p.differ.diff(d.Before, d.After)
	case d.Patch != nil:
		err = p.differ.diffPatch(d.Patch, d.After)
	default:
		return change{problem: "(the event does not show the change: it has neither before nor patch)"}
	}
	if err != nil {
		return change{problem: "(" + err.Error() + ")"}
	}
	return change{known: true}
}

// appendBrief appends a summary of the changes: first those that the user wrote, then metadata,
// then status.
func (p *Printer) appendBrief(dst []byte) []byte {
	nodes := p.differ.nodes
	if len(nodes) == 0 {
		return p.appendOnlyNoise(dst)
	}
	from := len(dst)
	for pass := range 3 {
		for k := 0; k < len(nodes); {
			end := k + 1
			if nodes[k].depth > 0 {
				for end < len(nodes) && nodes[end].depth > 1 {
					end++
				}
			}
			if nodes[k].kind != inside || nodes[k].depth > 0 {
				if rank(nodes[k].key) == pass {
					dst = p.appendBriefNodes(dst, from, nodes[k:end])
				}
			}
			k = end
			if p.width > 0 && len(dst)-from > 4*p.room() { // enough even if each character takes 4 bytes
				return dst
			}
		}
	}
	return dst
}

// appendOnlyNoise names the changed fields if only noise has changed.
func (p *Printer) appendOnlyNoise(dst []byte) []byte {
	if len(p.differ.noise) == 0 {
		return append(dst, "no difference"...)
	}
	return append(append(dst, "only "...), strings.Join(p.differ.noise, ", ")...)
}

func rank(key []byte) int {
	switch string(key) {
	case "metadata":
		return 1
	case "status":
		return 2
	}
	return 0
}

// appendBriefNodes appends the changes among nodes. The first node is the root of all others.
func (p *Printer) appendBriefNodes(dst []byte, from int, nodes []node) []byte {
	base := nodes[0].depth
	path := make([]*node, 0, 16)
	for k := range nodes {
		n := &nodes[k]
		path = append(path[:n.depth-base], n)
		if n.kind == inside {
			continue
		}
		if len(dst) > from {
			dst = append(dst, ", "...)
		}
		switch n.kind {
		case added:
			dst = append(dst, '+')
		case removed:
			dst = append(dst, '-')
		case unknown:
			if n.after == nil {
				dst = append(dst, '-')
			}
		}
		dst = p.appendPath(dst, path)
		switch n.kind {
		case changed:
			if text := p.redactedChange(n.before, n.after); text != "" {
				dst = append(append(dst, ' '), text...)
				break
			}
			if isString(n.before) && isString(n.after) {
				before, after := splitLines(unquote(n.before)), splitLines(unquote(n.after))
				if len(before) > 1 || len(after) > 1 {
					dst = appendLines(append(dst, ' '), before, after)
					break
				}
			}
			dst = p.appendShort(append(dst, ' '), n.before)
			dst = p.appendShort(append(dst, "→"...), n.after)
		case unknown:
			if n.after != nil {
				dst = p.appendShort(append(dst, "→"...), n.after)
			}
		case added:
			if !isContainer(n.after) && (n.elem && n.label == nil || !n.elem) {
				dst = p.appendShort(append(dst, ' '), n.after)
			}
		case ordered:
			dst = append(dst, "order of "...)
			dst = append(dst, n.label...)
		}
	}
	return dst
}

// appendPath appends the path to a change. If room is short, it omits the first steps, because the
// last ones say most.
func (p *Printer) appendPath(dst []byte, path []*node) []byte {
	limit := max(p.room()/2, leastPath)
	start := len(dst)
	for first := range path {
		dst = dst[:start]
		if first > 0 {
			dst = append(dst, ellipsis...)
		}
		from := len(dst)
		for _, step := range path[first:] {
			dst = appendStep(dst, from, step)
		}
		if width(dst[start:]) <= limit {
			break
		}
	}
	return dst
}

// appendStep appends one step of a path: ".key", or ["key"] if it is not a plain word, or [label].
func appendStep(dst []byte, start int, n *node) []byte {
	if n.elem {
		if n.kind == ordered {
			return append(dst, ' ')
		}
		dst = append(dst, '[')
		switch {
		case n.label != nil:
			dst = appendClean(dst, n.label)
		case n.to >= 0:
			dst = strconv.AppendInt(dst, int64(n.to), 10)
		default:
			dst = strconv.AppendInt(dst, int64(n.from), 10)
		}
		return append(dst, ']')
	}
	if n.key == nil {
		return dst
	}
	key := jsonscan.Unescape(n.key)
	if bytes.ContainsAny(key, `.[]"`) && len(dst) > start || len(key) == 0 {
		return append(appendQuoted(append(dst, '['), key), ']')
	}
	if len(dst) > start {
		dst = append(dst, '.')
	}
	return appendClean(dst, key)
}

// appendLines appends how many lines of a text have changed: "1 of 7 lines changed", or "+2 -1
// lines".
func appendLines(dst []byte, before, after [][]byte) []byte {
	same := 0
	sequence.Common(len(before), len(after), func(x, y int) bool { return bytes.Equal(before[x], after[y]) },
		func(int, int) { same++ })
	if removed, added := len(before)-same, len(after)-same; removed != added {
		if added > 0 {
			dst = append(appendCount(append(dst, '+'), added), ' ')
		}
		if removed > 0 {
			dst = append(appendCount(append(dst, '-'), removed), ' ')
		}
		return append(dst, plural(added+removed, "line", "lines")...)
	}
	dst = append(appendCount(dst, len(before)-same), " of "...)
	return append(appendCount(dst, len(before)), " lines changed"...)
}

const (
	// leastWho is the least number of columns for the authors, leastPath the number that a path may
	// always have.
	leastWho  = 10
	leastPath = 16
	// shortValue is the maximum number of columns of a value on the line of an event at a terminal.
	shortValue = 40
	// longValue is the maximum number of characters of a value in a pipe.
	longValue = 256
)

// appendShort appends a short form of a value.
func (p *Printer) appendShort(dst, value []byte) []byte {
	if isContainer(value) {
		return appendFlow(dst, value, 0)
	}
	from := len(dst)
	if isString(value) {
		dst = append(dst, p.shortenMACs(string(appendClean(nil, unquote(value))))...)
		if len(dst) == from {
			dst = append(dst, `""`...)
		}
	} else {
		dst = appendClean(dst, value)
	}
	switch n := len(dst) - from; {
	case p.opts.Wide:
	case p.width > 0 && n > shortValue:
		dst = append(dst[:from], cut(string(dst[from:]), shortValue)...)
	case n > longValue:
		if more := utf8.RuneCount(dst[from:]) - longValue; more > 0 {
			end := from
			for range longValue {
				_, size := utf8.DecodeRune(dst[end:])
				end += size
			}
			dst = append(appendCount(append(dst[:end], ellipsis+" "...), more), " more characters"...)
		}
	}
	return dst
}

// appendFlow appends a value on one line, with nested containers down to depth.
func appendFlow(dst, value []byte, depth int) []byte {
	if !isContainer(value) {
		return appendInline(dst, value)
	}
	if isEmpty(value) {
		return append(dst, value[0], value[0]+2)
	}
	var buf [16]member
	ms, err := appendMembers(buf[:0], value, nil)
	if err != nil {
		return append(dst, ellipsis...)
	}
	if depth <= 0 {
		if value[0] == '{' {
			return append(append(append(dst, '{'), ellipsis...), '}')
		}
		return append(appendCount(append(dst, '['), len(ms)), plural(len(ms), " item]", " items]")...)
	}
	dst = append(dst, value[0])
	for k := range ms {
		if k > 0 {
			dst = append(dst, ", "...)
		}
		if value[0] == '{' {
			dst = append(appendKey(dst, ms[k].key), ": "...)
		}
		dst = appendFlow(dst, ms[k].value, depth-1)
	}
	return append(dst, value[0]+2)
}
