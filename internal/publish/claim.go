package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// ClaimStore stores whole events that are too large for the bus.
//
// Put returns after body is durably stored, with a URI that a consumer can follow. The same name again replaces it. While the store is
// away or full, Put retries with backoff until ctx ends; then it returns the cause of ctx. An error that wraps ErrRefused means that the
// store rejects the body; any other, that the store is gone for good. Safe for concurrent use.
type ClaimStore interface {
	Put(ctx context.Context, name, contentType string, body []byte) (ref string, err error)
}

// ClaimName returns the name under which the whole of ev is stored, always the same: sha256(source + "\n" + id) in 64 hexadecimal digits.
func ClaimName(ev *encode.Event) string {
	h := sha256.New()
	h.Write(ev.Source)
	h.Write([]byte{'\n'})
	h.Write(ev.ID)
	return hex.EncodeToString(h.Sum(nil))
}
