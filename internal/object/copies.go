package object

import (
	"bytes"
	"slices"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Carrier is a resource whose objects have whole manifests as text or compressed, so that no Secret
// can be found in them.
type Carrier struct {
	Group, Resource string   // "fleet.cattle.io", "bundles"
	Paths           []string // of the manifests, in NewCutter's syntax
	Marker          string   // the objects that have this text; "": all
	By              string   // the tool that creates the objects
}

// Carriers returns the known carriers of manifests.
func Carriers() []Carrier {
	return []Carrier{
		{Resource: "configmaps", Paths: []string{
			"data.release",
		}, Marker: "sh.helm.release.v1.", By: "Helm with its ConfigMap driver"},
		{Group: "fleet.cattle.io", Resource: "bundles", Paths: []string{"spec.resources[*].content"}, By: "Fleet"},
		{Group: "fleet.cattle.io", Resource: "contents", Paths: []string{"content"}, By: "Fleet"},
		{Group: "core.oam.dev", Resource: "resourcetrackers", Paths: []string{"spec.compression.data"}, By: "KubeVela"},
		{Group: "core.oam.dev", Resource: "applicationrevisions", Paths: []string{
			"spec.compression.data",
		}, By: "KubeVela"},
		{
			Group: "core.gardener.cloud", Resource: "shootstates",
			Paths: []string{"spec.gardener[*].data", "spec.resources[*].data"}, By: "Gardener",
		},
	}
}

// copies is what a Cutter does about copies of Secrets, beside its paths.
type copies struct {
	annotations annotations
	// secret reads the Secrets that objects embed; nil: objects are not searched for them.
	secret *Cutter
	// An object that embeds a Secret, or has the marker, is cut at these paths too.
	marker        string
	holding       []string
	holdingValues []string // of holding, those that have values
}

// RedactCopies returns a Cutter that also removes copies of the values of Secrets from objects of a
// resource. c is unchanged, and may be nil. These are:
//
//   - annotations: those of CredentialAnnotations or, from a Secret, all but SecretAnnotations.
//   - the values of Secrets that an object of another resource embeds as JSON, at any depth, and
//     then also its own Copies. A reference to a Secret stays.
//   - the manifests in Carriers.
//
// They are removed even if other values are hashed.
func (c *Cutter) RedactCopies(group, resource string) (*Cutter, error) {
	if c == nil {
		c = &Cutter{}
	}
	paths := c.Paths()
	if group == "" && resource == "secrets" {
		return c.derive(paths, c.values, c.hashed, c.mac, copies{annotations: listedOnly})
	}
	secret, err := (*Cutter)(nil).derive(append(Copies(), SecretPaths(false)...), nil, nil, nil, copies{
		annotations: listedOnly,
	})
	if err != nil {
		return nil, err
	}
	values := slices.Clone(c.values)
	policy := copies{annotations: withoutCredentials, secret: secret, holding: Copies()}
	for _, carrier := range Carriers() {
		switch {
		case carrier.Group != group || carrier.Resource != resource:
		case carrier.Marker == "":
			paths = append(append(paths, Copies()...), carrier.Paths...)
			values = append(values, carrier.Paths...)
		default:
			policy.marker = carrier.Marker
			policy.holding = append(policy.holding, carrier.Paths...)
			policy.holdingValues = append(policy.holdingValues, carrier.Paths...)
		}
	}
	return c.derive(paths, values, c.hashed, c.mac, policy)
}

// copyFinder finds copies of Secrets in objects. It belongs to one goroutine.
type copyFinder struct {
	marker  []byte
	secrets *Scanner // reads the Secrets that are found

	found  []span
	frames []frame
	text   []byte // of an annotation, unescaped
	out    []byte // the object with redacted Secrets
}

// span is a Secret in a document: raw[start:end]. nests: it contains another one.
type span struct {
	start, end int
	nests      bool
}

// frame is a container that the search has entered.
type frame struct {
	start                 int
	object                bool
	place                 place
	kind, version, values bool // the object has the kind and the version of a Secret, and values
}

// place is the meaning of the next value for the search.
type place uint8

const (
	elsewhere place = iota
	atTop
	inMetadata
	inAnnotations
	inCopy // the text of an annotation that repeats the object
	inKind
	inVersion
	inValues
)

func newCopyFinder(c *copies) *copyFinder {
	return &copyFinder{marker: []byte(c.marker), secrets: NewScanner(c.secret)}
}

// isSuspect reports whether an object that has been scanned may have copies of Secrets. A scan has
// left less to search than the API server sent.
func (f *copyFinder) isSuspect(scanned []byte) bool {
	return f.isMarked(scanned) || mayNameSecret(scanned)
}

func (f *copyFinder) isMarked(raw []byte) bool {
	return len(f.marker) > 0 && bytes.Contains(raw, f.marker)
}

// redact returns the valid object in raw without the values of the Secrets that it embeds, and
// whether it has copies. The result is raw, or memory of f that is valid until the next call.
func (f *copyFinder) redact(raw []byte) (_ []byte, has bool) {
	f.forget()
	has = f.isMarked(raw)
	copied := f.find(raw)
	if len(f.found) == 0 {
		return raw, has || copied
	}
	f.out = f.out[:0]
	at := 0
	for _, s := range f.found {
		f.out = append(f.out, raw[at:s.start]...)
		out, _, err := f.secrets.Scan(f.out, raw[s.start:s.end], "", "")
		if err != nil || s.nests { // no API server accepts it as a Secret
			out = append(f.out, `{"apiVersion":"v1","kind":"Secret"}`...)
		}
		f.out, at = out, s.end
	}
	f.out = append(f.out, raw[at:]...)
	return f.out, true
}

// forget releases the memory of an exceptionally large object.
func (f *copyFinder) forget() {
	const keep = 64 << 10
	if cap(f.out)+cap(f.text) > keep || cap(f.frames) > maxSegments {
		f.out = nil
		f.text = nil
		f.frames = nil
		f.found = nil
	}
}

// mayNameSecret reports whether a document may have the text "Secret" as a value, in a text too.
// The API server writes it plainly. Another server may spell its letters with \u.
func mayNameSecret(raw []byte) bool {
	const name = "Secret"
	for at := 0; ; at += len(name) {
		i := bytes.Index(raw[at:], []byte(name))
		if i < 0 {
			break
		}
		at += i
		end := at + len(name)
		if at > 0 && raw[at-1] == '"' && end < len(raw) && (raw[end] == '"' || raw[end] == '\\') {
			return true
		}
	}
	for rest := raw; ; {
		i := bytes.Index(rest, []byte(`\u00`))
		if i < 0 || len(rest) < i+6 {
			return false
		}
		switch string(rest[i+4 : i+6]) {
		case "26", "3c", "3e": // & < >: encoding/json spells them so
		default:
			if rest[i+4] >= '2' {
				return true
			}
		}
		rest = rest[i+6:]
	}
}

// find sets f.found to the Secrets inside the object raw that no other one contains, in order. It
// reports whether an annotation that repeats the object has one. It does not recurse: the depth of
// the goroutine's stack must not depend on external input.
func (f *copyFinder) find(raw []byte) (copied bool) {
	f.found = f.found[:0]
	copied, ok := f.search(raw, true)
	if !ok {
		f.found = f.found[:0]
	}
	return copied && ok
}

// search appends to f.found. With top, the outermost object is none of them, and its annotations
// are searched too. It returns false for ok if raw is not valid JSON.
func (f *copyFinder) search(raw []byte, top bool) (copied, ok bool) {
	f.frames = f.frames[:0]
	next := elsewhere
	if top {
		next = atTop
	}
	i := jsonscan.SkipSpace(raw, 0)
	for {
		if i >= len(raw) || len(f.frames) > jsonscan.MaxDepth {
			return copied, false
		}
		switch c := raw[i]; c {
		case '{', '[':
			f.frames = append(f.frames, frame{start: i, object: c == '{', place: next})
			i = jsonscan.SkipSpace(raw, i+1)
			if i < len(raw) && raw[i] == c+2 { // '}' and ']' are '{'+2 and '['+2
				break // closed below
			}
			next, i = f.enter(raw, i)
			if i < 0 {
				return copied, false
			}
			continue
		case '"':
			start := i + 1
			i = jsonscan.SkipString(raw, start)
			if i < 0 {
				return copied, false
			}
			copied = f.note(next, raw[start:i-1]) || copied
		default:
			i = jsonscan.SkipScalar(raw, i)
			if i < 0 {
				return copied, false
			}
		}
		// A value has ended, or an empty container ends here.
		for {
			i = jsonscan.SkipSpace(raw, i)
			if len(f.frames) == 0 {
				return copied, i == len(raw)
			}
			if i >= len(raw) {
				return copied, false
			}
			if raw[i] == ',' {
				next, i = f.enter(raw, jsonscan.SkipSpace(raw, i+1))
				if i < 0 {
					return copied, false
				}
				break
			}
			if raw[i] != '}' && raw[i] != ']' || !f.leave(raw[i] == '}', i+1) {
				return copied, false
			}
			i++
		}
	}
}

// enter reads the name of a member, if the innermost container is an object. It returns the place
// of the value, and its offset.
func (f *copyFinder) enter(raw []byte, i int) (place, int) {
	in := &f.frames[len(f.frames)-1]
	if !in.object {
		return elsewhere, i
	}
	if i >= len(raw) || raw[i] != '"' {
		return elsewhere, ^i
	}
	start := i + 1
	i = jsonscan.SkipString(raw, start)
	if i < 0 {
		return elsewhere, i
	}
	name := raw[start : i-1]
	if jsonscan.Escaped(name) {
		name = jsonscan.AppendUnescaped(nil, name)
	}
	at := in.place.member(name)
	in.values = in.values || at == inValues
	return at, jsonscan.SkipColon(raw, i)
}

// member returns the place of a member of an object at p.
func (p place) member(name []byte) place {
	switch {
	case p == atTop && string(name) == "metadata":
		return inMetadata
	case p == inMetadata && string(name) == "annotations":
		return inAnnotations
	case p == inAnnotations && repeatingAnnotations[string(name)]:
		return inCopy
	}
	switch string(name) {
	case "kind":
		return inKind
	case "apiVersion":
		return inVersion
	case "data", "stringData":
		return inValues
	}
	return elsewhere
}

// note reads a text. It reports whether that is a copy of the object with a Secret in it.
func (f *copyFinder) note(at place, text []byte) bool {
	if at != inKind && at != inVersion && at != inCopy {
		return false
	}
	f.text = jsonscan.AppendUnescaped(f.text[:0], text)
	in := &f.frames[max(len(f.frames)-1, 0)]
	switch {
	case at == inKind && string(f.text) == "Secret":
		in.kind = true
	case at == inVersion && string(f.text) == "v1":
		in.version = true
	case at == inCopy && mayNameSecret(f.text):
		other := copyFinder{}
		_, ok := other.search(f.text, false)
		return ok && len(other.found) > 0
	}
	return false
}

// leave ends the innermost container before end. It returns false if that is of the other type.
func (f *copyFinder) leave(object bool, end int) bool {
	last := len(f.frames) - 1
	c := f.frames[last]
	f.frames = f.frames[:last]
	if c.object != object {
		return false
	}
	if c.kind && c.version && c.values && c.place != atTop {
		outside := len(f.found)
		for outside > 0 && f.found[outside-1].start > c.start {
			outside--
		}
		f.found = append(f.found[:outside], span{c.start, end, outside < len(f.found)})
	}
	return true
}
