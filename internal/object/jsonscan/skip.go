package jsonscan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// MaxDepth is the maximum nesting of a value: encoding/json's limit.
const MaxDepth = 10000

// ErrTruncated is returned for JSON that ends before its value does.
var ErrTruncated = errors.New("JSON ends before the value does")

// SyntaxError is an error in JSON.
type SyntaxError struct {
	Offset int // of the first byte that is not valid
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("JSON syntax at byte %d: %s", e.Offset, e.Msg)
}

// The functions below take JSON and an offset, and return the offset after the skipped part, or the
// complement (^) of the offset of the first invalid byte. That is len(b) if b is truncated. An int
// is cheaper to return than an error, and one value in a million needs the message, which ErrorAt
// creates.

// ErrorAt returns the error for a failed result: ErrTruncated or a *SyntaxError.
func ErrorAt(b []byte, failed int) error {
	at := ^failed
	if at >= len(b) {
		return ErrTruncated
	}
	return &SyntaxError{Offset: at, Msg: fmt.Sprintf("unexpected %q", b[at])}
}

// Nesting is a stack of the containers around a value: one bit per level, set for an object. It
// makes Skip independent of the goroutine's stack, whose depth must not depend on external input.
// The zero value is ready.
type Nesting struct {
	objects [MaxDepth/64 + 1]uint64
	Deepest int // the deepest level that was entered
}

// Skip skips the value at b[i], which is depth levels deep, and checks it as strictly as
// encoding/json.Valid.
func (n *Nesting) Skip(b []byte, i, depth int) int {
	for outside := depth; ; {
		if i >= len(b) {
			return ^len(b)
		}
		switch c := b[i]; c {
		case '"':
			i = SkipString(b, i+1)
		case '{', '[':
			if depth == MaxDepth {
				return ^i
			}
			depth++
			n.enter(depth, c == '{')
			i = skipBlank(b, i+1)
			if i >= len(b) || b[i] != c+2 { // '}' and ']' are '{'+2 and '['+2
				if c == '{' {
					i = skipName(b, i)
				}
				if i < 0 {
					return i
				}
				continue
			}
			depth--
			i++
		default:
			i = SkipScalar(b, i)
		}
		if i < 0 {
			return i
		}
		i, depth = n.after(b, i, depth, outside)
		if i < 0 || depth == outside {
			return i
		}
	}
}

// enter records whether the container at depth is an object.
func (n *Nesting) enter(depth int, object bool) {
	n.Deepest = max(n.Deepest, depth)
	bit := uint64(1) << (depth & 63)
	n.objects[depth>>6] &^= bit
	if object {
		n.objects[depth>>6] |= bit
	}
}

// after skips the separators after a value, up to the next value, or to the end of the value at
// outside.
func (n *Nesting) after(b []byte, i, depth, outside int) (int, int) {
	for depth != outside {
		i = skipBlank(b, i)
		if i >= len(b) {
			return ^len(b), depth
		}
		object := n.objects[depth>>6]&(1<<(depth&63)) != 0
		switch c := b[i]; {
		case c == ',':
			i = skipBlank(b, i+1)
			if object {
				i = skipName(b, i)
			}
			return i, depth
		case object && c == '}' || !object && c == ']':
			i++
			depth--
		default:
			return ^i, depth
		}
	}
	return i, depth
}

// skipBlank is SkipSpace, optimized for input without white space.
func skipBlank(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return SkipSpace(b, i)
	}
	return i
}

// skipName skips a member's name, the colon and the white space around it, and ends at the value.
func skipName(b []byte, i int) int {
	if i >= len(b) {
		return ^len(b)
	}
	if b[i] != '"' {
		return ^i
	}
	i = SkipString(b, i+1)
	if i < 0 {
		return i
	}
	if i+1 < len(b) && b[i] == ':' && b[i+1] > ' ' {
		return i + 1
	}
	return SkipColon(b, i)
}

// SkipColon skips a colon and the white space around it.
func SkipColon(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		i = SkipSpace(b, i)
	}
	if i >= len(b) {
		return ^len(b)
	}
	if b[i] != ':' {
		return ^i
	}
	i++
	if i < len(b) && b[i] <= ' ' {
		i = SkipSpace(b, i)
	}
	return i
}

// SkipSpace skips white space. It does not fail.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// StringStops marks the bytes of x that need a check inside a string: quotes, backslashes and
// control characters. The lowest mark is exact; borrows may set marks above it.
func StringStops(x uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	low := x ^ ones*('"'^' ') // maps the quote to the space, so that one comparison finds it and the control characters
	slash := x ^ ones*'\\'
	return ((low-ones*(' '+1))&^low | (slash-ones)&^slash) & tops
}

// StringStop returns the offset of the first byte from b[i] on that needs a check inside a string,
// or len(b).
func StringStop(b []byte, i int) int {
	for i+8 <= len(b) {
		if stops := StringStops(binary.LittleEndian.Uint64(b[i:])); stops != 0 {
			return i + bits.TrailingZeros64(stops)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

// SkipString skips the rest of a string; the opening quote precedes b[i].
func SkipString(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 { // inlined StringStop: most strings are short, and have no escapes
		if stops := StringStops(binary.LittleEndian.Uint64(b[i:])); stops != 0 {
			i += bits.TrailingZeros64(stops) >> 3
			if b[i] == '"' {
				return i + 1
			}
			break
		}
	}
	for {
		i = StringStop(b, i)
		if i >= len(b) {
			return ^len(b)
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i = skipEscape(b, i+1)
			if i < 0 {
				return i
			}
		default:
			return ^i
		}
	}
}

// skipEscape skips an escape; the backslash precedes b[i].
func skipEscape(b []byte, i int) int {
	if i >= len(b) {
		return ^len(b)
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for end := i + 5; ; {
			i++
			if i == end {
				return i
			}
			if i >= len(b) {
				return ^len(b)
			}
			if c := b[i]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return ^i
			}
		}
	}
	return ^i
}

// SkipScalar skips a number, true, false or null.
func SkipScalar(b []byte, i int) int {
	switch b[i] {
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	for j := range len(word) {
		if i+j >= len(b) {
			return ^len(b)
		}
		if b[i+j] != word[j] {
			return ^(i + j)
		}
	}
	return i + len(word)
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return i
	}
	if i < len(b) && b[i] == '.' {
		i = skipDigits(b, i+1)
		if i < 0 {
			return i
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits skips one or more digits.
func skipDigits(b []byte, i int) int {
	if i >= len(b) {
		return ^len(b)
	}
	if b[i] < '0' || b[i] > '9' {
		return ^i
	}
	for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; {
		i++
	}
	return i
}
