package patch

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Operation is one operation of a patch.
type Operation struct {
	Op    string          // "add", "replace", "remove"; of a patch that others made also "test"
	Path  []string        // the names and indexes on the way; empty: the whole document
	Value json.RawMessage // nil for a removal
}

// Parse reads a patch.
func Parse(patch []byte) ([]Operation, error) {
	var read []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(patch, &read); err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	all := make([]Operation, len(read))
	for k := range read {
		all[k] = Operation{Op: read[k].Op, Path: Segments(read[k].Path), Value: read[k].Value}
	}
	return all, nil
}

// Segments returns the names and indexes of a JSON pointer (RFC 6901); none for that of the whole
// document, and for a text that is no pointer.
func Segments(pointer string) []string {
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil
	}
	segments := strings.Split(rest, "/")
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for k := range segments {
		segments[k] = unescape.Replace(segments[k])
	}
	return segments
}
