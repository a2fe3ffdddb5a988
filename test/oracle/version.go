package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ObjectKey is the name of an object; one name may be had by several objects, one after the other.
type ObjectKey struct {
	Resource  string // As kubectl writes it: "deployments.apps".
	Namespace string // "" where cluster-scoped.
	Name      string
}

func (k ObjectKey) String() string { return k.Resource + " " + k.Namespace + "/" + k.Name }

// Split is the resource's plural and its group.
func (k ObjectKey) Split() (plural, group string) {
	plural, group, _ = strings.Cut(k.Resource, ".")
	return plural, group
}

// Version is one version of an object, or its deletion.
type Version struct {
	Key     ObjectKey
	Rev     uint64
	Deleted bool
	UID     string // Of a deletion: the object that is gone.
	Labels  map[string]string
	Node    string // Of a Pod: that it is bound to.
	Digest  Digest // Zero for a deletion.
	Managed []managed
}

// managed is an entry of metadata.managedFields, as far as changedBy tells of it.
type managed struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"`
	Subresource string `json:"subresource,omitempty"` // Not in events.
	Time        string `json:"time"`
}

// ReadVersion reads a version from an object's JSON. Where etcd is the source, rev is that of the key, for the value
// itself has no resourceVersion; where rev is 0 the object has its own.
func ReadVersion(resource string, rev uint64, raw []byte) (*Version, error) {
	obj, err := DecodeObject(raw)
	if err != nil {
		return nil, err
	}
	return NewVersion(resource, rev, obj)
}

// NewVersion is ReadVersion for a decoded object, which it changes.
func NewVersion(resource string, rev uint64, obj map[string]any) (*Version, error) {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: no metadata", resource)
	}
	text := func(field string) string { s, _ := meta[field].(string); return s }
	if rev == 0 {
		var err error
		if rev, err = strconv.ParseUint(text("resourceVersion"), 10, 64); err != nil {
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
		// There and back again: a few entries, and their types are then checked by someone else.
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

// changedBy is who made next out of prev (nil: out of nothing), by the contract's rule: the entries newer than the newest
// that the previous version had, and those of that second, or without a time, whose manager, operation and subresource it
// did not have. Times are RFC 3339 in UTC with whole seconds, so that they compare as text.
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

// SaysChangedBy holds what an event says against the rule. It may leave out one of the same second or without a time:
// the agent keeps 24 bits to tell those by.
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
