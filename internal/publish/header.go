package publish

const upperHex = "0123456789ABCDEF"

// AttributePrefix is the prefix of the headers of binary mode, in NATS and HTTP.
const AttributePrefix = "ce-"

// AppendHeaderValue percent-encodes the characters that a header must not contain: space, double
// quote, percent, and everything except printable ASCII (CloudEvents NATS binding 1.0.3, section
// 3.1.3.2).
func AppendHeaderValue(dst, value []byte) []byte {
	for _, c := range value {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
