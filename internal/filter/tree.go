package filter

import (
	"bytes"
	"encoding/json"

	"cel.dev/cel-go/common/types"
)

// maxLevels is the number of levels that a comparison opens one by one. Each level reads all bytes
// below it, so the values on the next one are decoded as a whole.
const maxLevels = 32

// sameTrees reports whether two JSON values are equal by the rules of CEL. It reads each byte once.
func sameTrees(a, b []byte) bool {
	x, ok := tree(a)
	if !ok {
		return false
	}
	y, ok := tree(b)
	return ok && sameTree(x, y)
}

func tree(raw []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err == nil
}

func sameTree(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, x := range a {
			if y, ok := b[name]; !ok || !sameTree(x, y) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i, x := range a {
			if !sameTree(x, b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && types.Equal(numberOf([]byte(a)), numberOf([]byte(b))) == types.True
	}
	return a == b
}
