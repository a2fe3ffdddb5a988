package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kubecdc/kubecdc/internal/object/patch"
	"github.com/kubecdc/kubecdc/internal/object/yamltext"
	"github.com/kubecdc/kubecdc/internal/sequence"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Line is a line of an object's YAML, without a newline.
type Line struct {
	Text   string
	Origin *Origin
}

// Origin says when a value was set and by whom.
type Origin struct {
	// Version is the first version known that has the value, without its JSON.
	Version *Version
	// Exact: that version set it. Otherwise, a version that the record does not have set it,
	// between Since and the time of Version. That version was withheld, was lost in a gap, or came
	// before the record began. In the last case, Since is zero.
	Exact bool
	Since time.Time
	// By are the managers who may have set the value; nil: they are not known. An inferred version
	// stands for several changes: By has the managers of all of them.
	By []consume.Change
}

// Blame finds the version that set each value of an object. The zero value is ready.
//
// It replays the JSON patches (package patch) that lead from one version to the next. An element
// that a patch inserts into a list is new, and those after it move. If a text of several lines
// replaces another, the lines that both have keep their origins.
type Blame struct {
	last  *Version
	after json.RawMessage // the last object known
	known time.Time       // of the last version whose object is known
	hole  bool            // versions are missing after it
	root  *origins
}

// origins has the origin of a value, and those of the values in it.
type origins struct {
	origin   *Origin
	members  map[string]*origins
	elements []*origins

	text  string    // if it has several lines
	lines []*Origin // of the lines of text
	begin *Origin   // of the line before them, which has the key and the indicator of the block
}

// Add adds the next version of the object. If another object has the name now,
// all lines of its version are new.
func (b *Blame) Add(v *Version) error {
	if b.last != nil && (b.last.key() != v.key() || b.last.Op == consume.Deleted) {
		*b = Blame{}
	}
	shown := *v
	shown.Before = nil
	shown.After = nil
	shown.Patch = nil
	origin := &Origin{Version: &shown, By: v.ChangedBy, Since: b.known}
	b.hole = b.hole || b.last != nil && !v.isNextOf(b.last)
	b.last = &shown
	if v.Before != nil && v.Op != consume.Deleted {
		// a version that is missing set the values that differ from the last known object
		missed := *origin
		missed.By = nil
		if err := b.advance(v.Before, &missed); err != nil {
			return fmt.Errorf("blame %s: before: %w", v.ID, err)
		}
		b.hole = false
	}
	if v.After == nil {
		b.hole = b.hole || v.Op != consume.Deleted
		return nil
	}
	origin.Exact = !b.hole && !v.Inferred && (v.Op == consume.Created || b.after != nil && v.Op != consume.Read)
	if b.hole || b.after == nil && !origin.Exact {
		origin.By = nil
	}
	if origin.Exact {
		origin.Since = time.Time{}
	}
	b.hole, b.known = false, v.Time
	if err := b.advance(v.After, origin); err != nil {
		return fmt.Errorf("blame %s: after: %w", v.ID, err)
	}
	return nil
}

// isNextOf reports whether v is the version right after was, as far as its event says.
func (v *Version) isNextOf(was *Version) bool {
	hasSameBefore := v.History == was.History && v.PreviousResourceVersion == was.ResourceVersion
	return v.Skipped == 0 && hasSameBefore && was.Op != consume.Left
}

// advance replaces the object by the next one. The values that differ get the origin.
func (b *Blame) advance(object json.RawMessage, origin *Origin) error {
	if b.after == nil {
		var value any
		if err := json.Unmarshal(object, &value); err != nil {
			return err
		}
		b.after, b.root = object, newOrigins(value, origin)
		return nil
	}
	change, err := patch.Append(nil, b.after, object)
	if err != nil {
		return err
	}
	operations, err := patch.Parse(change)
	if err != nil {
		return err
	}
	for k := range operations {
		if err := b.root.apply(&operations[k], origin); err != nil {
			return err
		}
	}
	b.after = object
	return nil
}

// newOrigins returns the origins of a value that one version has set.
func newOrigins(value any, origin *Origin) *origins {
	o := &origins{origin: origin}
	switch value := value.(type) {
	case map[string]any:
		o.members = make(map[string]*origins, len(value))
		for key, v := range value {
			o.members[key] = newOrigins(v, origin)
		}
	case []any:
		for _, v := range value {
			o.elements = append(o.elements, newOrigins(v, origin))
		}
	case string:
		if strings.Contains(value, "\n") {
			o.text, o.begin = value, origin
			o.lines = slices.Repeat([]*Origin{origin}, len(linesOf(value)))
		}
	}
	return o
}

// linesOf returns the lines of a text. A newline at its end begins no further line.
func linesOf(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// keepLines takes over the origins of the lines that the text has in common with the one that it
// replaces.
func (o *origins) keepLines(was *origins) {
	if was == nil || o.lines == nil || was.lines == nil {
		return
	}
	before, after := linesOf(was.text), linesOf(o.text)
	sequence.Common(len(before), len(after), func(x, y int) bool { return before[x] == after[y] }, func(x, y int) {
		o.lines[y] = was.lines[x]
	})
	wasIndented, endsBefore := indicator(was.text)
	isIndented, ends := indicator(o.text)
	if wasIndented == isIndented && endsBefore == ends {
		o.begin = was.begin
	}
}

// indicator returns what the first line of a block of YAML says of a text. isIndented: it begins
// with a space. ends: how many newlines it ends with; two stand for more.
func indicator(text string) (isIndented bool, ends int) {
	return strings.HasPrefix(strings.TrimLeft(text, "\n"), " "), min(2, len(text)-len(strings.TrimRight(text, "\n")))
}

// apply applies an operation of a patch.
func (o *origins) apply(op *patch.Operation, origin *Origin) error {
	var decoded any
	if op.Value != nil {
		if err := json.Unmarshal(op.Value, &decoded); err != nil {
			return err
		}
	}
	value := newOrigins(decoded, origin)
	if len(op.Path) == 0 {
		value.keepLines(o)
		*o = *value
		return nil
	}
	last := len(op.Path) - 1
	for _, step := range op.Path[:last] {
		o = o.child(step)
		if o == nil {
			return nothingAt(op)
		}
	}
	return o.set(op, op.Path[last], value)
}

func nothingAt(op *patch.Operation) error {
	return fmt.Errorf("patch: nothing at /%s", strings.Join(op.Path, "/"))
}

func (o *origins) child(step string) *origins {
	if o.members != nil {
		return o.members[step]
	}
	if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(o.elements) {
		return o.elements[n]
	}
	return nil
}

// set applies the operation to the child of o at a step.
func (o *origins) set(op *patch.Operation, step string, value *origins) error {
	if o.members != nil {
		if op.Op == "remove" {
			delete(o.members, step)
		} else {
			value.keepLines(o.members[step])
			o.members[step] = value
		}
		return nil
	}
	n, err := strconv.Atoi(step)
	switch {
	case err != nil || n < 0 || n > len(o.elements) || n == len(o.elements) && op.Op != "add":
		return nothingAt(op)
	case op.Op == "remove":
		o.elements = slices.Delete(o.elements, n, n+1)
	case op.Op == "add":
		o.elements = slices.Insert(o.elements, n, value)
	default:
		value.keepLines(o.elements[n])
		o.elements[n] = value
	}
	return nil
}

// Lines returns the YAML of the object after the last version, as kubectl writes it. It returns
// none if the object is gone or not known.
func (b *Blame) Lines() ([]Line, error) {
	if b.after == nil || b.last.Gone() || b.hole {
		return nil, nil
	}
	text, err := yamltext.FromJSON(b.after)
	if err != nil {
		return nil, fmt.Errorf("blame: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(bytes.Map(withoutBreaks, text), &document); err != nil {
		return nil, fmt.Errorf("blame: %w", err)
	}
	var lines []Line
	for line := range strings.Lines(string(text)) {
		lines = append(lines, Line{Text: strings.TrimSuffix(line, "\n")})
	}
	lines[0].Origin = b.root.origin
	for _, n := range document.Content {
		b.root.setOrigins(n, lines)
	}
	for i := range lines { // a text that is folded, or in quotes: its lines have the origin of the first
		if lines[i].Origin == nil && i > 0 {
			lines[i].Origin = lines[i-1].Origin
		}
	}
	return lines, nil
}

// withoutBreaks replaces the characters that end a line for the parser alone.
func withoutBreaks(r rune) rune {
	if r == 0x85 || r == 0x2028 || r == 0x2029 {
		return ' '
	}
	return r
}

// setOrigins sets the origin of each line on which a value begins. The first member of an element
// is on the line of the element.
func (o *origins) setOrigins(n *yaml.Node, lines []Line) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if child := o.members[key.Value]; child != nil && key.Line <= len(lines) {
				child.setOrigin(value, lines, key.Line-1)
			}
		}
	case yaml.SequenceNode:
		for i, element := range n.Content {
			if i < len(o.elements) && element.Line <= len(lines) {
				o.elements[i].setOrigin(element, lines, element.Line-1)
			}
		}
	}
}

// setOrigin sets the origin of the line on which a value begins, and of those in it.
func (o *origins) setOrigin(n *yaml.Node, lines []Line, at int) {
	if n.Kind == yaml.ScalarNode && n.Style&yaml.LiteralStyle != 0 && o.isAt(lines, n.Line) {
		lines[at].Origin = o.begin
		for k, origin := range o.lines {
			lines[n.Line+k].Origin = origin
		}
		return
	}
	lines[at].Origin = o.origin
	o.setOrigins(n, lines)
}

// isAt reports whether the lines from an index on are those of the text. It ignores indentation.
func (o *origins) isAt(lines []Line, at int) bool {
	if o.lines == nil || at+len(o.lines) > len(lines) {
		return false
	}
	for k, text := range linesOf(o.text) {
		if strings.TrimLeft(lines[at+k].Text, " ") != strings.TrimLeft(text, " ") {
			return false
		}
	}
	return true
}
