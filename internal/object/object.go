package object

import "strconv"

// Resource identifies what an informer observes: one resource of the API in one served version.
type Resource struct {
	Group      string // "" for the core group
	Version    string // "v1"
	Name       string // plural, lower case: "deployments"
	Kind       string // "Deployment"
	Namespaced bool
}

// String returns the resource as kubectl writes it: "deployments.apps", "pods".
func (r *Resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Group
}

// APIVersion returns the apiVersion of objects of the resource: "apps/v1", "v1".
func (r *Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Ref is the identity of one object. All held versions of the object that one rule selects share
// it. Each last-known object has one, so it is small: namespace and name are substrings of the key.
type Ref struct {
	Resource *Resource
	Key      string // "deployments.apps/namespace/name", or "nodes/name" if the resource is cluster-scoped
	UID      string

	// Clause is the index of the informer's rule that selects these versions; only the informer
	// interprets it.
	Clause uint16

	// Key[at:at+space] is the namespace; the name follows after its slash.
	at    uint16
	space uint32
}

// NewRef returns the identity of an object; namespace is "" if the resource is cluster-scoped.
func NewRef(r *Resource, namespace, name, uid string) *Ref {
	prefix := r.String() + "/"
	ref := &Ref{
		Resource: r,
		Key:      prefix + name,
		UID:      uid,
		at:       uint16(len(prefix)),
		space:    uint32(len(namespace)),
	}
	if namespace != "" {
		ref.Key = prefix + namespace + "/" + name
	}
	return ref
}

// Namespace returns "" if the resource is cluster-scoped.
func (r *Ref) Namespace() string { return r.Key[r.at : uint32(r.at)+r.space] }

// Name returns the object's name within its namespace.
func (r *Ref) Name() string {
	if r.space == 0 {
		return r.Key[r.at:]
	}
	return r.Key[uint32(r.at)+r.space+1:]
}

// Object is one version of one object: its JSON without the stripped paths, compressed by a Codec.
// It is immutable, so that the store of last-known objects and any number of deltas can share it.
type Object struct {
	Ref             *Ref
	ResourceVersion uint64

	// Managed summarizes the newest entries of metadata.managedFields, which are not stored. The
	// changedBy of the next version depends on it.
	Managed Stamp

	// Form identifies the content, without what is stripped and redacted. An API server may serve
	// one version in another form later. 0: it is not known.
	Form uint64

	codec *Codec
	body  string // packed; a string is 8 bytes smaller than a slice, which saves 16 bytes per object
}

// MaxLevels is the maximum nesting of an object that an event contains. Parsers of consumers bear
// far fewer levels than encoding/json: that of Python ends at about 990, and the event adds a few.
const MaxLevels = 500

// New compresses the JSON of one version of an object. It keeps no reference to json.
func New(ref *Ref, rv uint64, managed Stamp, codec *Codec, json []byte) *Object {
	return &Object{
		Ref:             ref,
		ResourceVersion: rv,
		Managed:         managed,
		codec:           codec,
		body:            codec.pack(json),
	}
}

// NewScanned is New for the JSON that Scan has returned, with what it found.
func NewScanned(ref *Ref, rv uint64, m *Scanned, codec *Codec, json []byte) *Object {
	o := New(ref, rv, m.Managed, codec, json)
	o.Form = Form(json)
	flags := byte(0)
	if m.Levels > MaxLevels {
		flags |= packedDeep
	}
	if m.Hides {
		flags |= packedHides
	}
	if m.Redacted {
		flags |= packedRedacted
	}
	if flags != 0 {
		o.body = string([]byte{o.body[0] | flags}) + o.body[1:]
	}
	return o
}

// Deep reports whether the object has more than MaxLevels levels, if Scan has read it.
func (o *Object) Deep() bool { return o.body != "" && o.body[0]&packedDeep != 0 }

// Hides reports whether copies of Secrets were removed from the object, if Scan has read it. A
// change of only these is invisible.
func (o *Object) Hides() bool { return o.body != "" && o.body[0]&packedHides != 0 }

// Redacted reports whether values of the object were removed or replaced, if Scan has read it.
func (o *Object) Redacted() bool { return o.body != "" && o.body[0]&packedRedacted != 0 }

// AppendJSON appends the object's JSON to dst. An error means corrupted memory: compression is
// lossless.
func (o *Object) AppendJSON(dst []byte) ([]byte, error) {
	return o.codec.appendUnpacked(dst, o.body)
}

// Size returns the length of the object's JSON, in bytes.
func (o *Object) Size() int { return unpackedSize(o.body) }

// HeldBytes returns the size of the compressed JSON, in bytes.
func (o *Object) HeldBytes() int { return len(o.body) }

// FormatVersion formats a resourceVersion as the API server does; it returns "" for 0 (not known).
func FormatVersion(rv uint64) string {
	if rv == 0 {
		return ""
	}
	return strconv.FormatUint(rv, 10)
}
