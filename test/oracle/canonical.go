package oracle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// LastApplied is what kubectl apply keeps in the object: for a Secret, its values once more.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Digest stands for the content of an object, less what the agent strips. Two objects have the same digest if and only
// if their JSON means the same: the order of members does not count, the spelling of numbers does, for the agent has no
// business in changing it. Versions are kept as digests so that 100,000 of them fit; what differs is fetched again when
// there is a fault to explain.
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

// strip takes out what must not be on the bus. Annotations that are empty afterwards go too: whether an agent leaves an
// empty map behind is a matter of taste.
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

// unstripped names what strip would take out.
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
		// Etcd has each object in the version that was stored when it was written, the agent reads all in one.
		obj = maps.Clone(obj)
		obj["apiVersion"] = group
	}
	canonical, err := json.Marshal(obj) // Sorts the members.
	if err != nil {
		panic(err) // It was decoded from JSON.
	}
	return sha256.Sum256(canonical)
}
