package proxy

import "bytes"

// Filter looks at what one connection carries, piece by piece as it comes: down to the client, or up to the server. False
// resets the connection; that piece is not forwarded then, nor anything behind it. It is called for one piece at a time and
// does not keep it.
type Filter func(down bool, piece []byte) bool

// CutAt makes filters that reset a connection whose client sends text, also where that comes in two pieces. The server gets
// what was in the pieces before.
func CutAt(text []byte) func() Filter {
	return func() Filter {
		var tail []byte // the end of what has come: one byte less than text
		return func(down bool, piece []byte) bool {
			if down {
				return true
			}
			tail = append(tail, piece...)
			if bytes.Contains(tail, text) {
				return false
			}
			tail = append(tail[:0], tail[max(0, len(tail)-len(text)+1):]...)
			return true
		}
	}
}
