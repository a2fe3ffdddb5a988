package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// ClaimStore keeps the whole of an event that is too large for the bus.
//
// Put returns after body is stored, durably, and says where: a URI that a consumer can follow. The same name again replaces
// it. What may pass, a store that is away or full, Put retries by itself, with backoff, until ctx ends; then it returns the
// cause of ctx. An error that wraps ErrRefused says that the store will not take it, any other that it is gone for
// good. Safe for concurrent use.
type ClaimStore interface {
	Put(ctx context.Context, name, contentType string, body []byte) (ref string, err error)
}

// ClaimName is what the whole of ev is stored under, the same however often it is: 64 hexadecimal digits, sha256(source + "\n"
// + id).
func ClaimName(ev *encode.Event) string {
	h := sha256.New()
	h.Write(ev.Source)
	h.Write([]byte{'\n'})
	h.Write(ev.ID)
	return hex.EncodeToString(h.Sum(nil))
}
