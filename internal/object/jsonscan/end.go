package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions below find the end of a part of JSON that has been checked before. They look at
// quotes and brackets alone, so they cost less than those that check, and bear any nesting. Like
// these they return the offset after the part, or the complement of an offset. For JSON that is not
// valid the result has no meaning, but they do not panic.

// StringEnd returns the offset after the string that begins at b[i].
func StringEnd(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for end := i + 1; end+8 <= len(b) && end < i+32; end += 8 { // most strings are too short for IndexByte
		x := binary.LittleEndian.Uint64(b[end:]) ^ '"'*ones
		if zeros := (x - ones) & ^x & tops; zeros != 0 { // the lowest bit marks the first byte of x that is zero
			end += bits.TrailingZeros64(zeros) / 8
			if b[end-1] != '\\' {
				return end + 1
			}
			break
		}
	}
	for from := i + 1; ; {
		n := bytes.IndexByte(b[from:], '"')
		if n < 0 {
			return ^len(b)
		}
		// After an odd number of backslashes the quote is part of the string.
		end := from + n
		slashes := end
		for slashes > i+1 && b[slashes-1] == '\\' {
			slashes--
		}
		if (end-slashes)%2 == 0 {
			return end + 1
		}
		from = end + 1
	}
}

// ValueEnd returns the offset after the value that begins at b[i].
func ValueEnd(b []byte, i int) int {
	if i >= len(b) {
		return ^len(b)
	}
	switch b[i] {
	case '"':
		return StringEnd(b, i)
	case '{', '[':
	default:
		start := i
		for i < len(b) && inScalar(b[i]) {
			i++
		}
		if i == start {
			return ^i
		}
		return i
	}
	for depth := 0; i < len(b); { // counts brackets instead of recursing, so that no depth overflows the stack
		switch b[i] {
		case '"':
			i = StringEnd(b, i)
			if i < 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return ^len(b)
}

// inScalar reports whether numbers, true, false and null may contain c.
func inScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'u' || c == '-' || c == '+' || c == '.' || c == 'E'
}
