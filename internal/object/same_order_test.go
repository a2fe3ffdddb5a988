package object_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Objects whose members come in another order at each level are compared in about one pass, not
// once more per level.
func TestSameButNestedOutOfOrder(t *testing.T) {
	const deep = 200 // twice per level would be 2^200 passes
	nested := func(x string) []byte {
		return []byte(strings.Repeat(`{"a":`, deep) + "0" + strings.Repeat(x, deep))
	}
	a, b := nested(`,"b":1,"c":2}`), nested(`,"c":2,"b":1}`)
	same, err := object.SameBut(a, b, nil)
	if err != nil || !same {
		t.Errorf("SameBut = %v, %v, want true", same, err)
	}
	if same, err := object.SameBut(a, nested(`,"c":3,"b":1}`), nil); err != nil || same {
		t.Errorf("SameBut of others = %v, %v, want false", same, err)
	}
}
