package answer

import "encoding/json"

// Of returns an object that contains only the value of the path, nil if there is none.
func (p Path) Of(object json.RawMessage) json.RawMessage { return p.of(object) }
