package console

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/sequence"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	maxLines     = 20 // of one value
	contextLines = 2  // around a change in a text of several lines
	leastShown   = 24 // columns of a value that are always shown
)

// putDetail appends the changes, in context, below the event's line.
func (p *Printer) putDetail(e *consume.Event, c change) {
	d := e.Data
	if d.Skipped > 0 {
		p.putNote(0, "("+withheld(d.Skipped)+")")
	}
	switch {
	case c.problem != "":
		p.putNote(0, c.problem)
	case c.known && len(p.differ.nodes) == 0:
		p.putNote(0, string(p.appendOnlyNoise(nil)))
	case c.known:
		p.putDifference()
	case d.Op == consume.Created || d.Op == consume.Entered:
		p.putWhole('+', d.After)
	case d.Op == consume.Deleted || d.Op == consume.Left:
		p.putWhole('-', d.Before)
	}
}

// putRow appends one line of a difference: the sign in the third column, followed by the text.
func (p *Printer) putRow(sign byte, indent int, text string) {
	text = p.shortenMACs(text)
	lead := appendSpaces(append(p.lead[:0], ' ', ' ', sign, ' '), indent)
	p.lead = lead
	p.put(signStyle(sign), string(lead)+text)
	p.endLine()
}

func signStyle(sign byte) terminal.Style {
	switch sign {
	case '+':
		return terminal.Green
	case '-':
		return terminal.Red
	case '~':
		return terminal.Yellow
	}
	return terminal.Plain
}

// putNote appends a line that is not part of the objects.
func (p *Printer) putNote(indent int, text string) {
	p.putSpace(4 + indent)
	p.put(terminal.Dim, text)
	p.endLine()
}

// putHeading appends the heading of a container in which something has changed.
func (p *Printer) putHeading(indent int, path []byte, ends string) {
	p.putSpace(4 + indent)
	p.put(terminal.Cyan, string(path)+":"+ends)
	p.endLine()
}

// putWhole appends an object that came or went: one line for each of its members, or the whole
// object if Wide is set.
func (p *Printer) putWhole(sign byte, object []byte) {
	if !exists(object) {
		return
	}
	ms, err := appendMembers(nil, trim(object), nil)
	if err != nil {
		p.putNote(0, err.Error())
		return
	}
	if p.opts.Wide {
		p.putBlock(sign, 0, appendBlock(nil, trim(object), 0, 0))
		return
	}
	for k := range ms {
		switch key := string(ms[k].key); key {
		case "apiVersion", "kind", "status":
		case "metadata":
			for _, field := range []string{"labels", "annotations", "finalizers"} {
				p.putMember(sign, "metadata."+field, lookup(ms[k].value, field))
			}
		default:
			p.putMember(sign, string(appendKey(nil, ms[k].key)), ms[k].value)
		}
	}
}

// putMember appends a member of an object on one line, unless the member is empty.
func (p *Printer) putMember(sign byte, name string, value []byte) {
	if value == nil || isContainer(value) && isEmpty(value) {
		return
	}
	p.putRow(sign, 0, name+": "+string(appendFlow(nil, value, 2)))
}

// putDifference appends the differ's nodes.
func (p *Printer) putDifference() {
	nodes := p.differ.nodes
	if nodes[0].kind != inside {
		p.putLeaf(&nodes[0], 0)
		return
	}
	if nodes[0].list {
		p.putNode(nodes, nil, 0)
		return
	}
	p.eachBelow(nodes, func(sub []node) { p.putNode(sub, nil, 0) })
}

// eachBelow calls f for each node one level deeper than the first, with all nodes below it.
func (p *Printer) eachBelow(nodes []node, f func([]node)) {
	depth := nodes[0].depth + 1
	for from := 1; from < len(nodes); {
		end := from + 1
		for end < len(nodes) && nodes[end].depth > depth {
			end++
		}
		f(nodes[from:end])
		from = end
	}
}

// putNode appends nodes[0] and all nodes below it. path leads to it from the last heading: steps
// that lead to one place only share a line, as in "spec.template.spec.containers[app]:".
func (p *Printer) putNode(nodes []node, path []byte, indent int) {
	n := &nodes[0]
	if n.kind != inside {
		p.putLeaf(n, indent)
		return
	}
	path = appendStep(path[:len(path):len(path)], 0, n)
	children, only := 0, n.list // only: a list, or one child
	leaves := false
	p.eachBelow(nodes, func(sub []node) {
		children++
		leaves = leaves || sub[0].kind != inside
	})
	only = only || children == 1
	if only && !leaves {
		p.eachBelow(nodes, func(sub []node) { p.putNode(sub, path, indent) })
		return
	}
	if n.list { // changed elements have their own headings
		p.eachBelow(nodes, func(sub []node) {
			if sub[0].kind == inside {
				p.putNode(sub, path, indent)
			}
		})
	}
	if len(path) > 0 {
		p.putHeading(indent, path, "")
		indent += 2
	}
	p.eachBelow(nodes, func(sub []node) {
		if !n.list || sub[0].kind != inside {
			p.putNode(sub, nil, indent)
		}
	})
}

// putLeaf appends a change.
func (p *Printer) putLeaf(n *node, indent int) {
	switch n.kind {
	case added:
		p.putValue('+', n, n.after, indent)
	case removed:
		p.putValue('-', n, n.before, indent)
	case ordered:
		p.putRow('~', indent, "order: "+string(n.label))
	case unknown:
		if n.after == nil {
			p.putRow('-', indent, nameOf(n)+ellipsis)
			return
		}
		p.putValue('~', n, n.after, indent)
	case changed:
		if text := p.redactedChange(n.before, n.after); text != "" {
			p.putRow('~', indent, nameOf(n)+p.foldValue(text, 4+indent+width(nameOf(n))))
			return
		}
		if isString(n.before) && isString(n.after) {
			before, after := unquote(n.before), unquote(n.after)
			if bytes.IndexByte(before, '\n') >= 0 || bytes.IndexByte(after, '\n') >= 0 {
				p.putText(n, before, after, indent)
				return
			}
			if p.putLongTexts(n, indent) {
				return
			}
		}
		p.putValue('-', n, n.before, indent)
		p.putValue('+', n, n.after, indent)
	}
}

// nameOf returns the text before a value: its key, or the dash of an element.
func nameOf(n *node) string {
	switch {
	case n.elem:
		return "- "
	case n.key == nil:
		return ""
	}
	return string(appendKey(nil, n.key)) + ": "
}

// putValue appends one value with its name.
func (p *Printer) putValue(sign byte, n *node, value []byte, indent int) {
	if !isContainer(value) &&
		(!isString(value) || bytes.IndexByte(value, '\\') < 0 || p.width > 0 && !literal(unquote(value))) {
		name := nameOf(n)
		p.putRow(sign, indent, name+p.foldValue(string(appendInline(nil, value)), 4+indent+width(name)))
		return
	}
	buf := p.scratch[:0]
	switch {
	case n.elem:
		buf = appendElement(buf, value, 0, 0)
	case n.key == nil:
		buf = appendBlock(buf, value, 0, 0)
	default:
		buf = appendMember(buf, &member{key: n.key, value: value}, 0, 0)
	}
	p.scratch = buf
	p.putBlock(sign, indent, buf)
}

// foldValue cuts a value that does not fit after taken columns, and appends the number of missing
// characters.
func (p *Printer) foldValue(text string, taken int) string {
	limit := p.width
	text = p.shortenMACs(text)
	if limit == 0 || width(text)+taken <= limit {
		return text
	}
	room := max(limit-taken, leastShown)
	total := utf8.RuneCountInString(text)
	shown := cut(text, room)
	for range 2 { // the second time because the number may have a digit more
		missing := string(appendCount(append([]byte(nil), ellipsis+" "...), total-utf8.RuneCountInString(shown)+1)) +
			" more characters"
		if room-len(missing) < 12 {
			return shown
		}
		shown = cut(text, room-len(missing)+len(ellipsis)-1)
		if last := len(shown) - len(ellipsis); last >= 0 && shown[last:] == ellipsis {
			shown = shown[:last]
		}
		more := appendCount([]byte(ellipsis+" "), total-utf8.RuneCountInString(shown))
		if out := shown + string(more) + " more characters"; width(out) <= room {
			return out
		}
	}
	return shown + ellipsis
}

// putLongTexts appends two long texts, from shortly before their first difference. It returns false
// if they fit, or differ early.
func (p *Printer) putLongTexts(n *node, indent int) bool {
	limit := p.width
	before, after := string(appendInline(nil, n.before)), string(appendInline(nil, n.after))
	name := nameOf(n)
	taken := 4 + indent + width(name)
	if limit == 0 || max(width(before), width(after))+taken <= limit {
		return false
	}
	same := 0
	for same < len(before) && same < len(after) && before[same] == after[same] {
		same++
	}
	const lead = 12 // bytes of the common start that are shown
	if same < max(limit-taken, leastShown)/2 {
		return false
	}
	from := same - lead
	for from > 0 && !utf8.RuneStart(before[from]) {
		from--
	}
	count := utf8.RuneCountInString(before[:from])
	skipped := "(" + string(appendCount(nil, count)) + " characters) " + ellipsis
	if width(skipped)+leastShown > limit-taken {
		skipped = ellipsis
	}
	taken += width(skipped)
	p.putRow('-', indent, name+skipped+p.foldValue(before[from:], taken))
	p.putRow('+', indent, name+skipped+p.foldValue(after[from:], taken))
	return true
}

// putBlock appends lines with a sign, up to the limit for one value.
func (p *Printer) putBlock(sign byte, indent int, text []byte) {
	text = bytes.TrimSuffix(text, []byte("\n"))
	lines := p.lines[:0]
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		lines = append(lines, line)
	}
	p.lines = lines
	p.putRows(sign, indent, lines)
}

func (p *Printer) putRows(sign byte, indent int, lines [][]byte) {
	shown := len(lines)
	if p.width > 0 && shown > maxLines {
		shown = maxLines - 1
	}
	for _, line := range lines[:shown] {
		p.putRow(sign, indent, p.foldValue(string(appendTabs(nil, line)), 4+indent))
	}
	if more := len(lines) - shown; more > 0 {
		p.putRow(sign, indent, string(appendCount([]byte(ellipsis+" "), more))+" more lines")
	}
}

// appendTabs appends a line. Arrows replace its tabs, padded to the next fourth column. Unprintable
// characters are escaped.
func appendTabs(dst, line []byte) []byte {
	from := len(dst)
	for {
		n := bytes.IndexByte(line, '\t')
		if n < 0 {
			return appendClean(dst, line)
		}
		dst = append(appendClean(dst, line[:n]), "→"...)
		line = line[n+1:]
		for width(dst[from:])%4 != 0 {
			dst = append(dst, ' ')
		}
	}
}

// putText appends the changed lines of a text, with some of the lines around them.
func (p *Printer) putText(n *node, before, after []byte, indent int) {
	p.putHeading(indent, []byte(strings.TrimRight(nameOf(n), ": ")), " |")
	indent += 2
	as, bs := splitLines(before), splitLines(after)
	i, j := 0, 0
	flush := func(enda, endb int) {
		p.putRows('-', indent, marked(as[i:enda], enda == len(as)))
		p.putRows('+', indent, marked(bs[j:endb], endb == len(bs)))
		i, j = enda, endb
	}
	same := 0 // unchanged lines that are not shown yet: as[i:i+same]
	around := func(last bool) {
		head, tail := contextLines, contextLines
		if i == 0 {
			head = 0
		}
		if last {
			tail = 0
		}
		if p.width == 0 && p.opts.Wide || same <= head+tail+1 {
			head, tail = same, 0
		}
		for _, line := range as[i : i+head] {
			p.putRow(' ', indent, p.foldValue(string(appendTabs(nil, bytes.TrimSuffix(line, []byte("\n")))), 4+indent))
		}
		if hidden := same - head - tail; hidden > 0 {
			p.putNote(indent, string(appendCount([]byte(ellipsis+" "), hidden))+" unchanged lines")
		}
		for _, line := range as[i+same-tail : i+same] {
			p.putRow(' ', indent, p.foldValue(string(appendTabs(nil, bytes.TrimSuffix(line, []byte("\n")))), 4+indent))
		}
		i += same
		j += same
		same = 0
	}
	sequence.Common(len(as), len(bs), func(x, y int) bool { return bytes.Equal(as[x], bs[y]) }, func(x, y int) {
		if x > i+same || y > j+same {
			if same > 0 {
				around(false)
			}
			flush(x, y)
		}
		same++
	})
	if i+same < len(as) || j+same < len(bs) {
		if same > 0 {
			around(false)
		}
		flush(len(as), len(bs))
	}
	if same > 0 {
		around(true)
	}
}

// splitLines splits text into lines, including their line ends.
func splitLines(text []byte) [][]byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if n := len(lines) - 1; len(lines[n]) == 0 {
		lines = lines[:n]
	}
	return lines
}

// marked removes the line ends, and adds a remark if the last line of the text had none.
func marked(lines [][]byte, last bool) [][]byte {
	out := make([][]byte, len(lines))
	for k, line := range lines {
		out[k] = bytes.TrimSuffix(line, []byte("\n"))
		if last && k == len(lines)-1 && len(out[k]) == len(line) {
			out[k] = append(out[k][:len(line):len(line)], " (no line end)"...)
		}
	}
	return out
}
