package checkpoint

import (
	"strings"
	"testing"
)

// The content of the ConfigMap may be anything, so its expansion is bounded. A checkpoint of the
// largest size that is saved can be read.
func TestExpansionIsBounded(t *testing.T) {
	for _, c := range []struct {
		size int
		want string // part of the error; "": none
	}{
		{expandedMax, ""},
		{expandedMax + 1, "more than 67108864 bytes"},
	} {
		small, err := compress(make([]byte, c.size))
		if err != nil {
			t.Fatal(err)
		}
		data, err := expand(small)
		if c.want == "" && (err != nil || len(data) != c.size) {
			t.Errorf("of %d bytes, %d are read: %v", c.size, len(data), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d bytes are read: %v", c.size, err)
		}
	}
}
