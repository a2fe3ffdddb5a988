package informers

import (
	"fmt"

	"github.com/kubecdc/kubecdc/internal/object"
)

// peeked is what rules ask of an object before it is scanned. It is reused.
type peeked struct {
	object.Head

	raw []byte
}

// look reads raw, which it refers to until the next call.
func (p *peeked) look(raw []byte) error {
	p.raw = raw
	if err := p.Peek(raw); err != nil {
		return fmt.Errorf("read an object: %w", err)
	}
	return nil
}

func (p *peeked) namespace() string { return string(p.Namespace) }

// field is the text of a value, "" where there is none.
func (p *peeked) field(path *object.Path) string {
	raw, err := object.Locate(p.raw, path)
	if err != nil || raw == nil || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		return string(object.AppendUnescaped(nil, raw[1:len(raw)-1]))
	}
	return string(raw)
}
