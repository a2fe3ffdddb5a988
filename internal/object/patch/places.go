package patch

import "github.com/kubecdc/kubecdc/internal/object/jsonscan"

// places are the places of the values in a part of a document, in the order of the document, each
// container before its content. One pass finds them all: a comparison does not search for the end
// of a value again on each level around it.
type places struct {
	doc []byte
	all []place
}

// place is the place of one value. The values inside it follow, up to all[next].
type place struct {
	key, keyEnd int32 // of a member: its key, between the quotes
	start, end  int32
	next        int32
}

// read finds the places of the value at doc[i] and of all values inside it, down to that many
// levels of containers. It returns the index after the value.
func (p *places) read(doc []byte, i, levels int) (end int, err error) {
	p.doc, p.all = doc, p.all[:0]
	return p.value(place{}, i, levels)
}

// release releases the document, and the memory that an exceptionally large one has taken.
func (p *places) release() {
	p.doc = nil
	if cap(p.all) > maxKept/16 {
		p.all = nil
	}
}

// value adds the value at doc[i], with the key in at, and all values inside it.
func (p *places) value(at place, i, levels int) (end int, err error) {
	n := len(p.all)
	at.start = int32(i)
	p.all = append(p.all, at)
	switch {
	case levels > 0 && i < len(p.doc) && p.doc[i] == '{':
		end, err = p.members(i+1, levels-1)
	case levels > 0 && i < len(p.doc) && p.doc[i] == '[':
		end, err = p.elements(i+1, levels-1)
	default:
		end = jsonscan.ValueEnd(p.doc, i)
		if end < 0 {
			return 0, jsonscan.ErrorAt(p.doc, end)
		}
	}
	p.all[n].end, p.all[n].next = int32(end), int32(len(p.all))
	return end, err
}

// members adds the members of an object, starting with the one at doc[i].
func (p *places) members(i, levels int) (end int, err error) {
	for first := true; ; first = false {
		i = jsonscan.SkipSpace(p.doc, i)
		if i < len(p.doc) && p.doc[i] == '}' {
			return i + 1, nil
		}
		if !first {
			if i >= len(p.doc) || p.doc[i] != ',' {
				return 0, errSyntax
			}
			i = jsonscan.SkipSpace(p.doc, i+1)
		}
		if i >= len(p.doc) || p.doc[i] != '"' {
			return 0, errSyntax
		}
		end = jsonscan.StringEnd(p.doc, i)
		if end < 0 {
			return 0, jsonscan.ErrorAt(p.doc, end)
		}
		at := place{key: int32(i + 1), keyEnd: int32(end - 1)}
		i = jsonscan.SkipSpace(p.doc, end)
		if i >= len(p.doc) || p.doc[i] != ':' {
			return 0, errSyntax
		}
		i, err = p.value(at, jsonscan.SkipSpace(p.doc, i+1), levels)
		if err != nil {
			return 0, err
		}
	}
}

// elements adds the elements of an array, starting with the one at doc[i].
func (p *places) elements(i, levels int) (end int, err error) {
	for first := true; ; first = false {
		i = jsonscan.SkipSpace(p.doc, i)
		if i < len(p.doc) && p.doc[i] == ']' {
			return i + 1, nil
		}
		if !first {
			if i >= len(p.doc) || p.doc[i] != ',' {
				return 0, errSyntax
			}
			i = jsonscan.SkipSpace(p.doc, i+1)
		}
		i, err = p.value(place{}, i, levels)
		if err != nil {
			return 0, err
		}
	}
}

// bytes returns the value at all[n].
func (p *places) bytes(n int32) []byte { return p.doc[p.all[n].start:p.all[n].end] }

// appendInside appends the indexes of the members or elements directly inside the value at all[n].
func (p *places) appendInside(dst []int32, n int32) []int32 {
	end := p.all[n].next
	for n++; n < end; n = p.all[n].next {
		dst = append(dst, n)
	}
	return dst
}
