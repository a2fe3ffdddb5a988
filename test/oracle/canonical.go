package oracle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// LastApplied is the annotation in which kubectl apply keeps a copy of the object. For a Secret,
// the copy contains the values.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Digest is a hash of an object without the fields that the agent strips. Two objects have the same
// digest if and only if their JSON is equal. The order of members does not matter, but the spelling
// of numbers does: the agent must not change it. Versions are kept as digests so that 100,000 of
// them fit in memory. An object that differs is fetched again to explain the fault.
type Digest [sha256.Size]byte

func (d Digest) String() string { return fmt.Sprintf("%x", d[:6]) }

// DecodeObject decodes the JSON of an object and keeps numbers as they are written.
func DecodeObject(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var obj map[string]any
	if err := d.Decode(&obj); err != nil {
		return nil, err
	}
	if obj == nil {
		return nil, fmt.Errorf("not an object: %.40q", raw)
	}
	return obj, nil
}

func isSecret(obj map[string]any) bool {
	return obj["kind"] == "Secret" && obj["apiVersion"] == "v1"
}

// strip removes the fields that must not be on the bus. It also removes annotations that are empty
// afterwards, because the agent may or may not keep an empty map.
func strip(obj map[string]any) {
	meta, _ := obj["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		delete(annotations, LastApplied)
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	if isSecret(obj) {
		delete(obj, "data")
		delete(obj, "stringData")
	}
}

// unstripped returns the fields that strip would remove.
func unstripped(obj map[string]any) []string {
	var left []string
	meta, _ := obj["metadata"].(map[string]any)
	if _, ok := meta["managedFields"]; ok {
		left = append(left, "metadata.managedFields")
	}
	annotations, _ := meta["annotations"].(map[string]any)
	if _, ok := annotations[LastApplied]; ok {
		left = append(left, "metadata.annotations["+LastApplied+"]")
	}
	if isSecret(obj) {
		for _, field := range []string{"data", "stringData"} {
			if _, ok := obj[field]; ok {
				left = append(left, field)
			}
		}
	}
	return left
}

// digestOf strips obj and digests the rest.
func digestOf(obj map[string]any) Digest {
	strip(obj)
	version, _ := obj["apiVersion"].(string)
	if group, _, _ := strings.Cut(version, "/"); strings.HasSuffix(group, "."+ChurnGroup) {
		// etcd has each object in the version that was the storage version at the time of the
		// write. The agent reads all in one.
		obj = maps.Clone(obj)
		obj["apiVersion"] = group
	}
	canonical, err := json.Marshal(obj) // Sorts the members.
	if err != nil {
		panic(err) // It was decoded from JSON.
	}
	return sha256.Sum256(canonical)
}
