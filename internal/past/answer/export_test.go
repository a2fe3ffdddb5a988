package answer

import "encoding/json"

// Compare returns the objects before and after a version, reduced to the values of the path, and
// whether these differ.
func (p Path) Compare(before, after json.RawMessage) (was, is json.RawMessage, isChange bool) {
	c := p.compare(before, after)
	return c.before, c.after, c.isChange
}

// Near returns the paths in an object that are similar to the path.
func (p Path) Near(object json.RawMessage) []string { return p.near([]json.RawMessage{object}) }
