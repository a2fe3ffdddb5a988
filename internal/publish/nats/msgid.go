package nats

import (
	"crypto/sha256"
	"encoding/base64"
)

// msgIDLen is the length of a Nats-Msg-Id: 132 bits of a sha256.
const msgIDLen = 22

// appendMsgID appends the first 22 characters of base64url(sha256(source + "\n" + id)). JetStream identifies the copies of an event by this
// id. dst is used as scratch space beyond its length.
func appendMsgID(dst, source, id []byte) []byte {
	n := len(dst)
	dst = append(dst, source...)
	dst = append(dst, '\n')
	dst = append(dst, id...)
	sum := sha256.Sum256(dst[n:])
	// 18 bytes encode to 24 characters; the first 22 are the same as those of the whole sum.
	dst = base64.RawURLEncoding.AppendEncode(dst[:n], sum[:18])
	return dst[:n+msgIDLen]
}
