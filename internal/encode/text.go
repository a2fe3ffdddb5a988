package encode

import (
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/object"
)

// appendText appends s as an attribute value. CloudEvents' strings have no control characters and no noncharacters
// (CloudEvents 1.0, Type System), but names of some resources may have them: the API server forbids only "%" and "/" in the
// name of a ClusterRole. They are percent-encoded, which is unique because no name contains "%". An error instead would
// allow anyone who may create a ClusterRole to stop the stream of all of them. The object in the data has the unencoded
// name.
func appendText(dst []byte, s string) []byte {
	plain := plainText(s)
	dst = append(dst, s[:plain]...)
	if plain == len(s) {
		return dst
	}
	for _, r := range s[plain:] { // invalid UTF-8 becomes U+FFFD
		if r < ' ' || 0x7f <= r && r < 0xa0 || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe {
			var buf [utf8.UTFMax]byte
			for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
				dst = appendPercent(dst, c)
			}
			continue
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// plainText returns the length of the prefix of s that needs no escapes in an attribute and in a JSON string: ASCII without
// control characters, quotes and backslashes. It may stop early, unless all of s is plain.
func plainText[T string | []byte](s T) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := x^ones*'"', x^ones*'\\'
		if (x|(x+ones)|(x-ones*' ')|(quote-ones)|(slash-ones))&tops != 0 { // x + ones detects a DEL
			return i
		}
	}
	for i < len(s) && ' ' <= s[i] && s[i] <= '~' && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

func appendPercent(dst []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '%', hex[c>>4], hex[c&15])
}

// appendQuoted appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, s)
	return append(dst, '"')
}

// appendEscaped appends the inside of a JSON string.
func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	plain := plainText(s)
	dst = append(dst, s[:plain]...)
	if plain == len(s) {
		return dst
	}
	const hex = "0123456789abcdef"
	for _, r := range string(s[plain:]) {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// appendPath appends the path under which the API server serves the resource: "/apis/apps/v1/namespaces/shop/deployments".
func appendPath(dst []byte, res *object.Resource, namespace string) []byte {
	if res.Group == "" {
		dst = append(dst, "/api/"...)
	} else {
		dst = append(dst, "/apis/"...)
		dst = append(appendPathSegment(dst, res.Group), '/')
	}
	dst = append(appendPathSegment(dst, res.Version), '/')
	if namespace != "" {
		dst = append(dst, "namespaces/"...)
		dst = append(appendPathSegment(dst, namespace), '/')
	}
	return appendPathSegment(dst, res.Name)
}

// appendPathSegment appends one segment of a URI's path, percent-encoding what RFC 3986 does not allow in one (pchar).
func appendPathSegment(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; isPathByte(c) {
			dst = append(dst, c)
		} else {
			dst = appendPercent(dst, c)
		}
	}
	return dst
}

func isPathByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '-', '.', '_', '~', '!', '$', '&', '\'', '(', ')', '*', '+', ',', ';', '=', ':', '@':
		return true
	}
	return false
}
