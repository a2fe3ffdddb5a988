package terminal

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/wording"
)

// State says how far an Item is.
type State uint8

// The states of an Item, in chronological order.
const (
	Waiting State = iota // not started
	Reading              // being read
	Sending              // read; its objects are being sent to the bus
	Done                 // everything is on the bus
)

// Item is the status of one entry of a Display.
type Item struct {
	Name     string
	State    State
	Objects  int    // read so far
	Expected int    // number of objects to read; 0 if unknown
	Sent     int    // number of Objects that are on the bus
	Problem  string // in a word or two why it cannot be read now (forbidden, not served); "" if it can
}

// redrawEvery is the interval of redraws.
const redrawEvery = 100 * time.Millisecond

// Limits of the display on any screen, so that people can read it at a glance.
const (
	maxRows     = 8 // active items
	maxProblems = 3 // kinds of problems
	maxBar      = 30
	minBar      = 8
)

// Display is a live region below the other output of an interactive Output. It is redrawn in
// place, ten times a second, for the current size of the terminal. Other writes to the same Output,
// by a handler of NewHandler or directly, appear above it, so the same logger works before, during
// and after. An Output shows one Display at a time.
//
// If others write many lines to the same terminal (records to standard output), show no Display:
// it would draw over their lines. The next redraw repairs a single line, or a person's ^C. If the
// process is killed, there is nothing to restore: the cursor is hidden within single writes only.
type Display struct {
	out    *Output
	poll   func() (render func(c *canvas), done bool)
	finish func(c *canvas)
	began  time.Time
	frame  int // of the spinner
}

// NewDisplay returns a Display of items. Run polls status from its goroutine until done:
//
//	display := terminal.NewDisplay(out, func() ([]terminal.Item, bool) {
//		select {
//		case <-set.Captured():
//			return items(set.Status()), true
//		default:
//			return items(set.Status()), false
//		}
//	})
//	g.Go(func() error { display.Run(ctx); return nil })
//
// After done it leaves one line, with the items that have the most objects.
func NewDisplay(out *Output, status func() (items []Item, done bool)) *Display {
	d := &Display{out: out}
	var last []Item
	d.poll = func() (func(*canvas), bool) {
		items, done := status()
		last = items
		return func(c *canvas) { d.renderItems(c, items) }, done
	}
	d.finish = func(c *canvas) { renderLargest(c, last) }
	return d
}

// NewCounter returns a Display of one line, such as "draining: 1,234 events left". After done it
// leaves no line.
func NewCounter(out *Output, line func() (text string, done bool)) *Display {
	d := &Display{out: out, finish: func(*canvas) {}}
	d.poll = func() (func(*canvas), bool) {
		text, done := line()
		return func(c *canvas) {
			c.startLine()
			c.addText(Cyan, d.spinner())
			c.addText(Plain, " "+printable(text))
			c.addText(Dim, d.elapsed())
		}, done
	}
	return d
}

// Run draws until the status is done or ctx ends, and removes the region before it returns. On an
// Output that is not interactive it draws nothing and returns at once.
func (d *Display) Run(ctx context.Context) {
	if !d.out.Interactive {
		return
	}
	d.began = time.Now()
	r := &region{out: d.out}
	defer r.remove(nil)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C: // before the first drawing too, so that a short task causes no flicker
		}
		render, done := d.poll()
		if done {
			r.remove(d.finish)
			return
		}
		r.show(func() { d.frame++ }, render)
	}
}

// spinner shows that the program is running even if no number changes.
func (d *Display) spinner() string {
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	return string(frames[d.frame%len(frames)])
}

// elapsed returns the time since the start, "" for less than a second.
func (d *Display) elapsed() string {
	past := time.Since(d.began).Truncate(time.Second)
	if past < time.Second {
		return ""
	}
	return " · " + past.String()
}

// renderItems shows a summary, the active items and the problems, from top to bottom. Lines that
// come and go are below those that stay.
func (d *Display) renderItems(c *canvas, items []Item) {
	c.startLine()
	c.addText(Cyan, d.spinner())
	if len(items) == 0 {
		c.addText(Plain, " looking for resources")
		c.addText(Dim, d.elapsed())
		return
	}
	done := 0
	objects := 0
	sent := 0
	for _, it := range items {
		if it.State == Done && it.Problem == "" {
			done++
		}
		objects, sent = objects+it.Objects, sent+it.Sent
	}
	c.addText(Plain, " "+wording.Count(done)+"/"+wording.Count(len(items))+" resources · "+
		wording.Count(objects)+" objects · "+wording.Count(sent)+" sent")
	c.addText(Dim, d.elapsed())

	problems := byProblem(items)
	// On a low screen, summary and problems have precedence over rows.
	renderRows(c, atWork(items, min(maxRows, c.height-3-len(problems))))
	for _, l := range problems {
		c.startLine()
		c.addText(Yellow, "! "+l)
	}
}

// atWork returns at most n items to show. Items in state Reading precede those in state Sending.
func atWork(items []Item, n int) []Item {
	var out []Item
	for _, s := range []State{Reading, Sending} {
		for _, it := range items {
			if it.State == s && it.Problem == "" && len(out) < n && (s == Reading || it.Sent < it.Objects) {
				out = append(out, it)
			}
		}
	}
	return out
}

// byProblem returns a line for each kind of problem, with the names of its items.
func byProblem(items []Item) []string {
	names := map[string][]string{}
	for _, it := range items {
		if it.Problem != "" {
			names[it.Problem] = append(names[it.Problem], it.Name)
		}
	}
	kinds := slices.Sorted(maps.Keys(names))
	if len(kinds) > maxProblems {
		var other []string
		for _, k := range kinds[maxProblems-1:] {
			other = append(other, names[k]...)
		}
		slices.Sort(other)
		kinds = append(kinds[:maxProblems-1], "other problems")
		names["other problems"] = other
	}
	for i, k := range kinds {
		kinds[i] = printable(k + " (" + wording.Count(len(names[k])) + "): " + strings.Join(names[k], ", "))
	}
	return kinds
}

// row is an item in columns.
type row struct {
	name, count, unit string
	look              Style
	part              float64 // filled part of the bar; negative if unknown
}

func renderRows(c *canvas, items []Item) {
	rows := make([]row, 0, len(items))
	names, counts := 0, 0
	for _, it := range items {
		r := row{
			name: printable(it.Name),
			unit: " read",
			look: Cyan,
			part: -1,
		}
		n, of := it.Objects, it.Expected
		if it.State == Sending {
			r.unit = " sent"
			r.look = Green
			n = it.Sent
			of = it.Objects
		}
		r.count = wording.Count(n)
		if of > 0 {
			r.count += "/" + wording.Count(of)
			r.part = min(float64(n)/float64(of), 1)
		}
		names, counts = max(names, utf8.RuneCountInString(r.name)), max(counts, len(r.count))
		rows = append(rows, r)
	}
	names = min(names, c.width*2/5)
	bar := min(maxBar, c.width-2-names-2-2-counts-len(" read"))
	if !slices.ContainsFunc(rows, func(r row) bool { return r.part >= 0 }) {
		bar = 0
	}
	for _, r := range rows {
		c.startLine()
		name := cut(r.name, names)
		c.addText(Plain, "  "+name+strings.Repeat(" ", names-utf8.RuneCountInString(name)+2))
		if bar >= minBar {
			if r.part >= 0 {
				full := int(r.part * float64(bar))
				c.addText(r.look, strings.Repeat("━", full))
				c.addText(Dim, strings.Repeat("─", bar-full))
			} else {
				c.addText(Plain, strings.Repeat(" ", bar))
			}
			c.addText(Plain, "  ")
		}
		c.addText(Plain, strings.Repeat(" ", counts-len(r.count))+r.count)
		c.addText(Dim, r.unit)
	}
}

// renderLargest shows the items with the most objects, as many as fit on a line, aligned with the
// messages of a log.
func renderLargest(c *canvas, items []Item) {
	items = slices.DeleteFunc(slices.Clone(items), func(it Item) bool { return it.Objects == 0 })
	slices.SortStableFunc(items, func(a, b Item) int { return b.Objects - a.Objects })
	if len(items) == 0 {
		return
	}
	line := strings.Repeat(" ", len(time.TimeOnly))
	for i, it := range items {
		next := " " + printable(it.Name) + " " + wording.Count(it.Objects)
		if i > 0 {
			next = " ·" + next
		}
		more := ""
		if rest := len(items) - i - 1; rest > 0 {
			more = " · " + wording.Count(rest) + " more"
		}
		if i > 0 && utf8.RuneCountInString(line+next+more) > c.width {
			line += " · " + wording.Count(len(items)-i) + " more"
			break
		}
		line += next
	}
	c.startLine()
	c.addText(Dim, line)
}
