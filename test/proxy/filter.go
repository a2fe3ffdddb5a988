package proxy

import "bytes"

// Filter inspects the data of one connection, piece by piece: down to the client, or up to the
// server. If it returns false, the proxy resets the connection, and forwards neither that piece nor
// later ones. It is called for one piece at a time, and must not keep it.
type Filter func(down bool, piece []byte) bool

// CutAt makes filters that reset a connection when its client sends text, even if that arrives in
// two pieces. The server receives the earlier pieces.
func CutAt(text []byte) func() Filter {
	return func() Filter {
		var tail []byte // the last bytes received, one fewer than text has
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
