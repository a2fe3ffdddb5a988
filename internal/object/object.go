package object

import "strconv"

// Resource names what an informer observes: one resource of the API in one served version.
type Resource struct {
	Group      string // "" for the core group
	Version    string // "v1"
	Name       string // plural, lower case: "deployments"
	Kind       string // "Deployment"
	Namespaced bool
}

// String is the resource as kubectl writes it: "deployments.apps", "pods".
func (r *Resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Group
}

// APIVersion is what objects of the resource carry as apiVersion: "apps/v1", "v1".
func (r *Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Ref is the identity of one object, shared by all versions of it that are held and that one rule takes. There is one for each
// last-known object, so it is kept small: namespace and name are parts of the key.
type Ref struct {
	Resource *Resource
	Key      string // "deployments.apps/namespace/name", or "nodes/name" where the resource is cluster-scoped
	UID      string

	// Clause is which of the rules of its informer takes these versions: an index that means something to the informer only.
	Clause uint16

	// Key[at:at+space] is the namespace, what follows it and its slash is the name.
	at    uint16
	space uint32
}

// NewRef is the identity of an object; namespace is "" where the resource is cluster-scoped.
func NewRef(r *Resource, namespace, name, uid string) *Ref {
	prefix := r.String() + "/"
	ref := &Ref{Resource: r, Key: prefix + name, UID: uid, at: uint16(len(prefix)), space: uint32(len(namespace))}
	if namespace != "" {
		ref.Key = prefix + namespace + "/" + name
	}
	return ref
}

// Namespace is "" where the resource is cluster-scoped.
func (r *Ref) Namespace() string { return r.Key[r.at : uint32(r.at)+r.space] }

// Name is the object's name within its namespace.
func (r *Ref) Name() string {
	if r.space == 0 {
		return r.Key[r.at:]
	}
	return r.Key[uint32(r.at)+r.space+1:]
}

// Object is one version of one object: its JSON, less what is stripped, as compressed by a Codec. Immutable, so that
// the store of last-known objects and any number of deltas share it.
type Object struct {
	Ref             *Ref
	ResourceVersion uint64

	// Managed tells the newest entries of metadata.managedFields, which are not kept: the next version's changedBy is
	// told by it.
	Managed Stamp

	codec *Codec
	body  string // packed; a string, because it is 8 bytes smaller than a slice, which makes 16 for each object
}

// New packs the JSON of one version of an object. It keeps no reference to json.
func New(ref *Ref, rv uint64, managed Stamp, codec *Codec, json []byte) *Object {
	return &Object{Ref: ref, ResourceVersion: rv, Managed: managed, codec: codec, body: codec.pack(json)}
}

// AppendJSON appends the object's JSON to dst. An error means damaged memory: packing and unpacking are inverse.
func (o *Object) AppendJSON(dst []byte) ([]byte, error) {
	return o.codec.appendUnpacked(dst, o.body)
}

// Size is the length of the object's JSON, in bytes.
func (o *Object) Size() int { return unpackedSize(o.body) }

// HeldBytes is what the compressed JSON occupies, in bytes.
func (o *Object) HeldBytes() int { return len(o.body) }

// FormatVersion writes a resourceVersion as the API server does, "" for 0 (not known).
func FormatVersion(rv uint64) string {
	if rv == 0 {
		return ""
	}
	return strconv.FormatUint(rv, 10)
}
