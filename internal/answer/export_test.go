package answer

import "encoding/json"

// Of returns a copy of object that has only the value of the path. It returns nil if the object lacks the value.
func (p Path) Of(object json.RawMessage) json.RawMessage { return p.of(object) }
