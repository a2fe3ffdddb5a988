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

// Paths at which an object repeats its content.
const (
	ManagedFields = "metadata.managedFields"
	LastApplied   = `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`
)

// Copies returns the paths at which a copy of a redacted value may be: ManagedFields, LastApplied,
// and annotations of other tools. Those annotations store the object, or the changes to it, plain
// or compressed. Redact cuts them.
func Copies() []string {
	return []string{
		ManagedFields,
		LastApplied,
		`metadata.annotations["kapp.k14s.io/original"]`,
		`metadata.annotations["kapp.k14s.io/original-diff"]`,
		`metadata.annotations["kapp.k14s.io/original-diff-full"]`,
		`metadata.annotations["objectset.rio.cattle.io/applied"]`, // wrangler: Rancher, k3s
		// k8s-objectmatcher, in many operators
		`metadata.annotations["banzaicloud.com/last-applied"]`,
		`metadata.annotations["kopf.zalando.org/last-handled-configuration"]`,      // operators in Python
		`metadata.annotations["metacontroller.k8s.io/last-applied-configuration"]`, // Metacontroller
		`metadata.annotations["app.oam.dev/last-applied-configuration"]`,           // KubeVela
		`metadata.annotations["qbec.io/last-applied"]`,
	}
}

// SecretPaths returns the paths of the values of a Secret. If the values are removed (hashed is
// false), so are their names. Redact adds Copies.
func SecretPaths(hashed bool) []string {
	if hashed {
		return []string{"data[*]", "stringData[*]"}
	}
	return []string{"data", "stringData"}
}

// Redact returns a Cutter that also redacts the values at paths. With a nil mac it removes them,
// else it replaces each value by the output of mac. Every value except null is redacted; an object
// or array at a path is replaced as a whole. A null means that there is no value, and stays. If
// paths overlap, the shorter one counts; if two are equal, removal overrides replacement. Copies
// are removed. Without paths Redact returns c, which is unchanged and may be nil.
//
// The syntax of paths and the errors are those of NewCutter.
func (c *Cutter) Redact(paths []string, mac *MAC) (*Cutter, error) {
	if len(paths) == 0 {
		return c, nil
	}
	if mac == nil {
		if c == nil {
			c = &Cutter{}
		}
		cut := slices.Concat(c.paths, Copies(), paths)
		return c.derive(cut, slices.Concat(c.values, paths), c.hashed, c.mac, c.copies)
	}
	cut, hashed := append(c.Paths(), Copies()...), slices.Clone(paths)
	if c != nil {
		if c.mac != nil && c.mac != mac {
			return nil, errors.New("redact: an object cannot have two keys")
		}
		hashed = append(hashed, c.hashed...)
	}
	policy := copies{}
	var values []string
	if c != nil {
		policy, values = c.copies, c.values
	}
	return c.derive(cut, values, hashed, mac, policy)
}

// MAC replaces a value by a code that shows whether the value has changed, but from which it cannot
// be guessed without the key. Immutable, safe for concurrent use, and prints as REDACTED.
type MAC struct {
	// HMAC-SHA256 with the key; a closure, so that no way of printing a MAC reaches the key
	hash          func() hash.Hash
	id, long      string
	acrossObjects bool
}

const (
	minKey = 16 // bytes
	// macFormat is the version of the replacement format, for fingerprints.
	macFormat = "hmac-sha256/2"

	// RedactedPrefix begins each text that replaces a redacted value.
	RedactedPrefix = "hmac-sha256:"
	macBytes       = 16 // of 32: enough to make collisions infeasible
	idDigits       = 8
	// replacedSize is the length of a replacement, with its quotes.
	replacedSize = 1 + len(RedactedPrefix) + idDigits + 1 + (macBytes*8+5)/6 + 1
)

// NewMAC returns a MAC with a key of 16 bytes or more, the content of the key's file; line ends
// after the key are ignored.
//
// A value is replaced by the JSON string "hmac-sha256:<key id>:<mac>". The key id is 8 hexadecimal
// digits derived from the key. The mac is the first 16 bytes of an HMAC-SHA256 in base64url without
// padding, 22 characters. Its input is the object's uid, the path and the value, each preceded by
// its length in bytes as a big-endian uint64. With acrossObjects it is the object's namespace and
// the value, so that equal values can be found in all objects of a namespace. Who may create an
// object there can test guesses: the namespace keeps the others' values out of reach. The path has
// NewCutter's syntax, with the real names in place of [*] for members:
// spec.template.spec.containers[*].env[*].value, data["tls.crt"]. The input for a string is its
// text, for any other value the JSON as the API server wrote it.
func NewMAC(key []byte, acrossObjects bool) (*MAC, error) {
	key = bytes.Clone(bytes.TrimRight(key, "\r\n"))
	if len(key) < minKey {
		return nil,
			fmt.Errorf(
				"key has %d bytes and could be guessed, want at least %d: create one with `openssl rand -base64 32`",
				len(key), minKey)
	}
	m := &MAC{acrossObjects: acrossObjects, hash: func() hash.Hash { return hmac.New(sha256.New, key) }}
	h := m.hash()
	h.Write([]byte("kubecdc key id")) // differs from the input of any value: no length is so large
	m.long = hex.EncodeToString(h.Sum(nil)[:16])
	m.id = m.long[:idDigits]
	return m, nil
}

// ID returns the key id in the values: 8 hexadecimal digits. It returns "" for nil.
func (m *MAC) ID() string {
	if m == nil {
		return ""
	}
	return m.id
}

const redactedText = "REDACTED"

// String implements fmt.Stringer.
func (*MAC) String() string { return redactedText }

// Format implements fmt.Formatter for all verbs.
func (*MAC) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redactedText)) }

// LogValue implements slog.LogValuer.
func (*MAC) LogValue() slog.Value { return slog.StringValue(redactedText) }

// hasher computes the replacements of one object after another. The uid may follow the values in
// the object: space is reserved for them until it is known.
type hasher struct {
	mac     *MAC
	hash    hash.Hash
	pending []replacement
	paths   []byte
	sum     [sha256.Size]byte
	length  [8]byte
}

// replacement is a value for which out[at:] is reserved.
type replacement struct {
	at, path, pathEnd int    // paths[path:pathEnd]
	value             []byte // aliases the scanned bytes, or the Scanner's memory
}

func newHasher(m *MAC) *hasher { return &hasher{mac: m, hash: m.hash()} }

func (h *hasher) reset() {
	const keep = 1 << 10
	if cap(h.pending) > keep || cap(h.paths) > keep*64 {
		h.pending, h.paths = nil, nil // release the memory of an exceptionally large object
	}
	clear(h.pending) // release the scanned bytes
	h.pending, h.paths = h.pending[:0], h.paths[:0]
}

// replace reserves space for the replacement of the value at raw[start:end].
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
	h.pending = append(h.pending, replacement{
		at:      len(s.dst),
		path:    path,
		pathEnd: len(h.paths),
		value:   value,
	})
	var place [replacedSize]byte
	s.dst = append(s.dst, place[:]...)
}

// fill writes the replacements into the reserved space of out.
func (h *hasher) fill(out []byte, m *Scanned) {
	for _, p := range h.pending {
		h.hash.Reset()
		if h.mac.acrossObjects {
			h.write(m.Namespace)
		} else {
			h.write(m.UID)
			h.write(h.paths[p.path:p.pathEnd])
		}
		h.write(p.value)
		sum := h.hash.Sum(h.sum[:0])
		place := out[p.at : p.at+replacedSize]
		n := copy(place, `"`+RedactedPrefix)
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
