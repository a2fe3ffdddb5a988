package sum

import "testing"

func TestSum(t *testing.T) {
	b := Bounds[int]{2, 5}
	if b.Clamp(1) != 2 || b.Clamp(3) != 3 || b.Clamp(7) != 5 {
		t.Error("not clamped")
	}
	if s := Sum(3); s != 6 {
		t.Errorf("the sum is %d", s)
	}
	if x, y := IsSmall(1, 2); !x || !y {
		t.Error("1 and 2 are small")
	}
	if Next(1) != 2 {
		t.Error("no next")
	}
}
