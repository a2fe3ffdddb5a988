package answer

import "encoding/json"

// Of returns object reduced to the value of the path, or nil if the object has no such value.
func (p Path) Of(object json.RawMessage) json.RawMessage { return p.of(object) }
