package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// objectKey is the name of an object; one name may be had by several objects, one after the other.
type objectKey struct {
	Resource  string // As kubectl writes it: "deployments.apps".
	Namespace string // "" where cluster-scoped.
	Name      string
}

func (k objectKey) String() string { return k.Resource + " " + k.Namespace + "/" + k.Name }

// split is the resource's plural and its group.
func (k objectKey) split() (plural, group string) {
	plural, group, _ = strings.Cut(k.Resource, ".")
	return plural, group
}

// version is one version of an object, or its deletion.
type version struct {
	Key     objectKey
	Rev     uint64
	Deleted bool
	UID     string // Of a deletion: the object that is gone.
	Labels  map[string]string
	Digest  digest // Zero for a deletion.
	Managed []managed
}

// managed is an entry of metadata.managedFields, as far as changedBy tells of it.
type managed struct {
	Manager   string `json:"manager"`
	Operation string `json:"operation"`
	Time      string `json:"time"`
}

// readVersion reads a version from an object's JSON. Where etcd is the source, rev is that of the key, for the value
// itself has no resourceVersion; where rev is 0 the object has its own.
func readVersion(resource string, rev uint64, raw []byte) (*version, error) {
	obj, err := decodeObject(raw)
	if err != nil {
		return nil, err
	}
	return newVersion(resource, rev, obj)
}

// newVersion is readVersion for a decoded object, which it changes.
func newVersion(resource string, rev uint64, obj map[string]any) (*version, error) {
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
	v := &version{
		Key: objectKey{Resource: resource, Namespace: text("namespace"), Name: text("name")},
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
	v.Digest = digestOf(obj)
	return v, nil
}

// changedBy is who made next out of prev (nil: out of nothing), by the contract's rule: the entries newer than the newest
// that the previous version had. Times are RFC 3339 in UTC with whole seconds, so that they compare as text.
func changedBy(prev, next *version) []managed {
	var newest string
	if prev != nil {
		for _, m := range prev.Managed {
			newest = max(newest, m.Time)
		}
	}
	var list []managed
	for _, m := range next.Managed {
		if m.Time > newest {
			list = append(list, m)
		}
	}
	return sortManaged(list)
}

func sortManaged(list []managed) []managed {
	slices.SortFunc(list, func(a, b managed) int {
		return strings.Compare(a.Time+a.Manager+a.Operation, b.Time+b.Manager+b.Operation)
	})
	return list
}
