package encode

import (
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// appendText appends s as an attribute value. CloudEvents' strings have no control characters and
// no noncharacters (CloudEvents 1.0, Type System), but names of some resources may have them: the
// API server forbids only "%" and "/" in the name of a ClusterRole. They are percent-encoded, which
// is unique because no name contains "%". An error instead would allow anyone who may create a
// ClusterRole to stop the stream of all of them. The object in the data has the unencoded name.
func appendText(dst []byte, s string) []byte {
	plain := jsonscan.Plain(s)
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

func appendPercent(dst []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '%', hex[c>>4], hex[c&15])
}

// appendPath appends the path under which the API server serves the resource:
// "/apis/apps/v1/namespaces/shop/deployments".
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

// appendPathSegment appends one segment of a URI's path, percent-encoding what RFC 3986 does not
// allow in one (pchar).
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
