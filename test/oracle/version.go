package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ObjectKey is the name of an object. Several objects may have the same name, one after the other.
type ObjectKey struct {
	Resource  string // As kubectl writes it: "deployments.apps".
	Namespace string // "" if cluster-scoped.
	Name      string
}

func (k ObjectKey) String() string { return k.Resource + " " + k.Namespace + "/" + k.Name }

// Split returns the resource's plural and its group.
func (k ObjectKey) Split() (plural, group string) {
	plural, group, _ = strings.Cut(k.Resource, ".")
	return plural, group
}

// Version is one version of an object, or its deletion.
type Version struct {
	Key     ObjectKey
	Rev     uint64
	Deleted bool
	UID     string // For a deletion: that of the deleted object.
	Labels  map[string]string
	Node    string // The node to which a Pod is bound.
	Digest  Digest // Zero for a deletion.
	Managed []managed
	// Seen is when the watch on etcd showed the version, which is shortly after it was written. It
	// is zero for a version that was not read from that watch.
	Seen time.Time
}

// managed is an entry of metadata.managedFields, with the fields that changedBy uses.
type managed struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"`
	Subresource string `json:"subresource,omitempty"` // Not in events.
	Time        string `json:"time"`
}

// ReadVersion reads a version from an object's JSON. For a value from etcd, which has no
// resourceVersion, rev is the revision of the key. If rev is 0, ReadVersion uses the object's
// resourceVersion.
func ReadVersion(resource string, rev uint64, raw []byte) (*Version, error) {
	obj, err := DecodeObject(raw)
	if err != nil {
		return nil, err
	}
	return NewVersion(resource, rev, obj)
}

// NewVersion is ReadVersion for a decoded object, which it modifies.
func NewVersion(resource string, rev uint64, obj map[string]any) (*Version, error) {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: no metadata", resource)
	}
	text := func(field string) string { s, _ := meta[field].(string); return s }
	if rev == 0 {
		var err error
		rev, err = strconv.ParseUint(text("resourceVersion"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s: resourceVersion: %w", resource, text("namespace"), text("name"), err)
		}
	} else {
		meta["resourceVersion"] = strconv.FormatUint(rev, 10)
	}
	v := &Version{
		Key: ObjectKey{Resource: resource, Namespace: text("namespace"), Name: text("name")},
		Rev: rev,
		UID: text("uid"),
	}
	if labels, ok := meta["labels"].(map[string]any); ok {
		v.Labels = make(map[string]string, len(labels))
		for k, value := range labels {
			v.Labels[k], _ = value.(string)
		}
	}
	if fields, ok := meta["managedFields"]; ok {
		// Encoded and decoded again, so that encoding/json checks the types of the entries.
		text, err := json.Marshal(fields)
		if err == nil {
			err = json.Unmarshal(text, &v.Managed)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: managedFields: %w", v.Key, err)
		}
	}
	if spec, ok := obj["spec"].(map[string]any); ok {
		v.Node, _ = spec["nodeName"].(string)
	}
	v.Digest = digestOf(obj)
	return v, nil
}

// changedBy returns the writers that changed prev (nil: no object) into next, by the contract's
// rule. These are the entries that are newer than the newest entry of prev. Entries of that same
// second, or without a time, count unless prev has one with the same manager, operation and
// subresource. Times are RFC 3339 in UTC with whole seconds, so that they compare as text.
func changedBy(prev, next *Version) []managed {
	var newest string
	had := map[managed]bool{}
	if prev != nil {
		for _, m := range prev.Managed {
			newest = max(newest, m.Time)
			had[m] = true
		}
	}
	var list []managed
	for _, m := range next.Managed {
		if m.Time > newest || (m.Time == newest || m.Time == "") && !had[m] {
			list = append(list, m)
		}
	}
	return sortManaged(list)
}

// SaysChangedBy checks the changedBy of an event against the rule. The event may lack an entry of
// the same second or without a time, because the agent distinguishes those by only 24 bits.
func SaysChangedBy(prev, next *Version, got []managed) error {
	want := changedBy(prev, next)
	required := want
	if prev != nil {
		var newest string
		for _, m := range prev.Managed {
			newest = max(newest, m.Time)
		}
		required = nil
		for _, m := range want {
			if m.Time > newest {
				required = append(required, m)
			}
		}
	}
	strip := func(list []managed) []string {
		var out []string
		for _, m := range list {
			out = append(out, m.Time+" "+m.Manager+" "+m.Operation)
		}
		return out
	}
	allowed, have := strip(want), strip(got)
	for _, m := range strip(required) {
		if !slices.Contains(have, m) {
			return fmt.Errorf("lacks %s; it has %q", m, have)
		}
	}
	for _, m := range have {
		i := slices.Index(allowed, m)
		if i < 0 {
			return fmt.Errorf("has %s too many; the rule gives %q", m, strip(want))
		}
		allowed = slices.Delete(allowed, i, i+1)
	}
	return nil
}

func sortManaged(list []managed) []managed {
	slices.SortFunc(list, func(a, b managed) int {
		return strings.Compare(a.Time+a.Manager+a.Operation, b.Time+b.Manager+b.Operation)
	})
	return list
}
