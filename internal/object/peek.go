package object

import "github.com/kubecdc/kubecdc/internal/object/jsonscan"

// Head has the fields of an object that a selection requires before the scan. Texts are unescaped,
// nil if the object has none, and alias either the input or separate memory.
type Head struct {
	Namespace, Name []byte
	Labels          Labels
}

// Labels are the labels of an object. They implement labels.Labels of k8s.io/apimachinery.
type Labels []Label

// Label is one label of an object.
type Label struct{ Name, Value []byte }

// Lookup returns a label's value, and whether the object has it.
func (l Labels) Lookup(name string) (value string, exists bool) {
	for i := len(l) - 1; i >= 0; i-- { // of duplicates the last counts
		if string(l[i].Name) == name {
			return string(l[i].Value), true
		}
	}
	return "", false
}

// Has reports whether the object has a label.
func (l Labels) Has(name string) bool {
	_, exists := l.Lookup(name)
	return exists
}

// Get returns a label's value, "" if the object does not have it.
func (l Labels) Get(name string) string {
	value, _ := l.Lookup(name)
	return value
}

// Peek reads h from an object in JSON, before Scan does. The last of duplicate members counts, so
// it continues while the rest may contain another metadata. It skips values of a wrong type and
// everything after the metadata: Scan reports errors there. An error says where the JSON is wrong.
func (h *Head) Peek(raw []byte) error {
	*h = Head{Labels: h.Labels[:0]}
	p := pair{a: cursor{b: raw, i: jsonscan.SkipSpace(raw, 0)}}
	h.object(&p)
	return p.err()
}

func (h *Head) object(p *pair) {
	c := &p.a
	if c.i >= len(c.b) || c.b[c.i] != '{' {
		p.skip(c, 0)
		return
	}
	for more := c.first('}'); more && c.member(); more = c.next('}') {
		if string(c.text()) == "metadata" {
			*h = Head{Labels: h.Labels[:0]}
			if c.i < len(c.b) && c.b[c.i] == '{' {
				h.metadata(p)
				if !c.mayContain([]byte(`"metadata"`)) {
					return
				}
				continue
			}
		}
		if !p.skip(c, 1) {
			return
		}
	}
}

func (h *Head) metadata(p *pair) {
	c := &p.a
	for more := c.first('}'); more && c.member(); more = c.next('}') {
		switch string(c.text()) {
		case "namespace":
			h.Namespace = p.readText(2)
		case "name":
			h.Name = p.readText(2)
		case "labels":
			h.Labels = h.Labels[:0]
			if c.i < len(c.b) && c.b[c.i] == '{' {
				h.labels(p)
				continue
			}
			p.skip(c, 2)
		default:
			p.skip(c, 2)
		}
		if c.bad != 0 {
			return
		}
	}
}

func (h *Head) labels(p *pair) {
	c := &p.a
	for more := c.first('}'); more && c.member(); more = c.next('}') {
		name := c.kept()
		value := p.readText(3)
		if c.bad != 0 {
			return
		}
		h.Labels = append(h.Labels, Label{name, value})
	}
}

// readText consumes the current value, and returns its text, or nil if it is not a string.
func (p *pair) readText(depth int) []byte {
	c := &p.a
	i := c.i
	if !p.skip(c, depth) || c.b[i] != '"' {
		return nil
	}
	text := c.b[i+1 : c.i-1 : c.i-1]
	if jsonscan.Escaped(text) {
		text = jsonscan.AppendUnescaped(nil, text)
	}
	return text
}
