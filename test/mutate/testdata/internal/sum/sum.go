// Package sum is an example whose report of gremlins is beside it.
package sum

// Bounds is a range of numbers.
type Bounds[T ~int] struct{ Low, High T }

// Size is outside of a function.
var Size = 4 * 1

// Clamp returns n within the bounds.
func (b *Bounds[T]) Clamp(n T) T {
	if n < b.Low {
		return b.Low
	}
	if n > b.High {
		return b.High
	}
	return n
}

// Sum returns the sum of the numbers from 1 to n.
func Sum(n int) int {
	sum := 0
	for i := 1; i <= n; i++ {
		sum = sum + i
	}
	return sum
}

// IsSmall is said of two numbers.
func IsSmall(a, b int) (bool, bool) {
	var x, y bool
	if a < Size {
		x = true
	}
	if b < Size && a < Size {
		y = true
	}
	if a < Size {
		x = true
	}
	return x, y
}
