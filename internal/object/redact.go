package object

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"slices"
)

// What an object says a second time.
const (
	ManagedFields = "metadata.managedFields"
	LastApplied   = `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`
)

// Copies are the paths at which a value that is redacted elsewhere could hide: ManagedFields, LastApplied, and the annotations in
// which tools other than kubectl keep the object as they wrote it, or what they changed of it, plain or packed. Redact cuts them.
func Copies() []string {
	return []string{
		ManagedFields,
		LastApplied,
		`metadata.annotations["kapp.k14s.io/original"]`,
		`metadata.annotations["kapp.k14s.io/original-diff"]`,
		`metadata.annotations["kapp.k14s.io/original-diff-full"]`,
		`metadata.annotations["objectset.rio.cattle.io/applied"]`,                  // wrangler: Rancher, k3s
		`metadata.annotations["banzaicloud.com/last-applied"]`,                     // k8s-objectmatcher, in many operators
		`metadata.annotations["kopf.zalando.org/last-handled-configuration"]`,      // operators in Python
		`metadata.annotations["metacontroller.k8s.io/last-applied-configuration"]`, // Metacontroller
		`metadata.annotations["app.oam.dev/last-applied-configuration"]`,           // KubeVela
		`metadata.annotations["qbec.io/last-applied"]`,
	}
}

// SecretPaths are the paths that hold the values of a Secret. Where they are removed (hashed is false) so are their
// names. Redact takes Copies beside them.
func SecretPaths(hashed bool) []string {
	if hashed {
		return []string{"data[*]", "stringData[*]"}
	}
	return []string{"data", "stringData"}
}

// Redact is a Cutter that besides withholds what the paths name: with a nil mac it is removed, else each value is
// replaced by what mac makes of it. Whatever is not null is a value: an object or array that a path names is replaced
// whole. A null says that there is none, and stays. Where paths overlap the shorter one counts; of two that name the same,
// removing wins. Copies are removed. Without paths it is c, which is unchanged and may be nil.
//
// Paths are written, and errors are, as for NewCutter.
func (c *Cutter) Redact(paths []string, mac *MAC) (*Cutter, error) {
	if len(paths) == 0 {
		return c, nil
	}
	if mac == nil {
		return c.With(append(Copies(), paths...)...)
	}
	cut, hashed := append(c.Paths(), Copies()...), slices.Clone(paths)
	if c != nil {
		if c.mac != nil && c.mac != mac {
			return nil, errors.New("redact: one object, two keys")
		}
		hashed = append(hashed, c.hashed...)
	}
	return newCutter(cut, hashed, mac)
}

// MAC makes of a value what shows that it changed, and cannot be guessed without the key. Immutable, safe for
// concurrent use, and prints as REDACTED.
type MAC struct {
	hash          func() hash.Hash // HMAC-SHA256 with the key: no way of printing a MAC leads to it
	id, long      string
	acrossObjects bool
}

const (
	minKey = 16 // bytes
	// macFormat names how replacements are made, for fingerprints.
	macFormat = "hmac-sha256/1"

	macPrefix = "hmac-sha256:"
	macBytes  = 16 // of 32: more than anyone finds two values for
	idDigits  = 8
	// replacedSize is the length of a replacement, with its quotes.
	replacedSize = 1 + len(macPrefix) + idDigits + 1 + (macBytes*8+5)/6 + 1
)

// NewMAC is a MAC with a key of 16 bytes or more, as the key's file holds it; line ends behind it do not count.
//
// In the place of a value stands the JSON string "hmac-sha256:<key id>:<mac>": 8 hexadecimal digits derived from the key,
// and the first 16 bytes of an HMAC-SHA256 in base64url without padding, 22 characters. It is taken over the object's uid,
// the path and the value, each behind its length in bytes as a big-endian uint64; acrossObjects: over the value (behind
// its length) alone, so that equal values can be found in all objects. The path is as NewCutter takes it, with real names
// where the configured one has [*] for members: spec.template.spec.containers[*].env[*].value, data["tls.crt"]. Of a
// string the value is its text, of all else the JSON as the API server wrote it.
func NewMAC(key []byte, acrossObjects bool) (*MAC, error) {
	key = bytes.Clone(bytes.TrimRight(key, "\r\n"))
	if len(key) < minKey {
		return nil, fmt.Errorf("key has %d bytes, which could be guessed, want %d or more: make one with `openssl rand -base64 32`", len(key), minKey)
	}
	m := &MAC{acrossObjects: acrossObjects, hash: func() hash.Hash { return hmac.New(sha256.New, key) }}
	h := m.hash()
	h.Write([]byte("kubecdc key id")) // no length is so large: it is none of the values
	m.long = hex.EncodeToString(h.Sum(nil)[:16])
	m.id = m.long[:idDigits]
	return m, nil
}

// ID names the key in the values: 8 hexadecimal digits. "" for nil.
func (m *MAC) ID() string {
	if m == nil {
		return ""
	}
	return m.id
}

const printed = "REDACTED"

// String implements fmt.Stringer.
func (*MAC) String() string { return printed }

// Format implements fmt.Formatter for all verbs.
func (*MAC) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(printed)) }

// LogValue implements slog.LogValuer.
func (*MAC) LogValue() slog.Value { return slog.StringValue(printed) }

// hasher makes the replacements of one object after another. The uid may stand behind the values: their places are held
// until it is known.
type hasher struct {
	mac     *MAC
	hash    hash.Hash
	pending []replacement
	paths   []byte
	sum     [sha256.Size]byte
	length  [8]byte
}

// replacement is a value whose place is held at out[at:].
type replacement struct {
	at, path, pathEnd int    // paths[path:pathEnd]
	value             []byte // of the scanned bytes, or the Scanner's
}

func newHasher(m *MAC) *hasher { return &hasher{mac: m, hash: m.hash()} }

func (h *hasher) reset() {
	const keep = 1 << 10
	if cap(h.pending) > keep || cap(h.paths) > keep*64 {
		h.pending, h.paths = nil, nil // a giant does not stay
	}
	clear(h.pending) // they would keep the scanned bytes
	h.pending, h.paths = h.pending[:0], h.paths[:0]
}

// replace holds the place of the value at raw[start:end].
func (s *Scanner) replace(start, end int) {
	value := s.raw[start:end:end]
	switch value[0] {
	case 'n':
		return
	case '"':
		value = s.text(value[1 : len(value)-1])
	}
	h := s.hasher
	s.dst = append(s.dst, s.raw[s.copied:start]...)
	s.copied = end
	path := len(h.paths)
	h.paths = append(h.paths, s.path...)
	h.pending = append(h.pending, replacement{at: len(s.dst), path: path, pathEnd: len(h.paths), value: value})
	var place [replacedSize]byte
	s.dst = append(s.dst, place[:]...)
}

// fill puts what was held a place for into out.
func (h *hasher) fill(out, uid []byte) {
	for _, p := range h.pending {
		h.hash.Reset()
		if !h.mac.acrossObjects {
			h.write(uid)
			h.write(h.paths[p.path:p.pathEnd])
		}
		h.write(p.value)
		sum := h.hash.Sum(h.sum[:0])
		place := out[p.at : p.at+replacedSize]
		n := copy(place, `"`+macPrefix)
		n += copy(place[n:], h.mac.id)
		place[n] = ':'
		base64.RawURLEncoding.Encode(place[n+1:], sum[:macBytes])
		place[replacedSize-1] = '"'
	}
}

func (h *hasher) write(part []byte) {
	binary.BigEndian.PutUint64(h.length[:], uint64(len(part)))
	h.hash.Write(h.length[:])
	h.hash.Write(part)
}
