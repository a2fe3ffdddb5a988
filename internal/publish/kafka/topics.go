package kafka

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// DefaultTopic is the default topic template.
const DefaultTopic = "kubecdc.{cluster}"

// maxTopic is the maximum length of a topic's name (org.apache.kafka.common.internals.Topic).
const maxTopic = 249

// Topics is a compiled topic template.
type Topics struct {
	template string
	parts    []subject.Part
}

// String returns the template.
func (t *Topics) String() string { return t.template }

// NewTopics compiles a topic template; "" is DefaultTopic. Placeholders are {cluster}, with the value cluster, {group}, {resource} and
// {namespace}. Topics consist of A-Za-z0-9._- and have at most 249 bytes. A group keeps its dots; the core group is "core", the namespace
// of a cluster-scoped object "_".
func NewTopics(template, cluster string) (*Topics, error) {
	template = cmp.Or(template, DefaultTopic)
	if cluster == "" {
		return nil, errors.New("topic template: the cluster has no name")
	}
	parts, err := compileTopic(template, cluster)
	if err != nil {
		return nil, fmt.Errorf("topic template %q: %w", template, err)
	}
	return &Topics{template: template, parts: parts}, nil
}

func compileTopic(template, cluster string) ([]subject.Part, error) {
	known := map[string]subject.Field{"group": subject.FieldGroup, "resource": subject.FieldResource, "namespace": subject.FieldNamespace}
	parts, err := subject.Parse(template, func(_ int, c byte) error {
		if !topicByte(c) {
			return fmt.Errorf("character %q: a topic is made of A-Z a-z 0-9 . _ -", c)
		}
		return nil
	}, func(name string, follows bool) (string, subject.Field, error) {
		if name == "cluster" {
			i := slices.IndexFunc([]byte(cluster), func(c byte) bool { return !topicByte(c) })
			if i >= 0 {
				return "", 0, fmt.Errorf("the cluster's name %q has character %q at byte %d: a topic is made of A-Z a-z 0-9 . _ -", cluster, cluster[i], i)
			}
			return cluster, subject.FieldLiteral, nil
		}
		f, ok := known[name]
		switch {
		case ok && follows:
			return "", f, fmt.Errorf("{%s} directly after another placeholder: two objects might share a topic by accident", name)
		case !ok:
			return "", f, fmt.Errorf("unknown placeholder {%s}, known are {cluster}, {group}, {resource} and {namespace}", name)
		}
		return "", f, nil
	})
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 && (parts[0].Text == "." || parts[0].Text == "..") {
		return nil, fmt.Errorf("%q is not a valid topic name", parts[0].Text)
	}
	shortest := 0
	for _, p := range parts {
		shortest += max(len(p.Text), 1)
	}
	if shortest > maxTopic {
		return nil, fmt.Errorf("yields topics of at least %d bytes, Kafka allows %d", shortest, maxTopic)
	}
	return parts, nil
}

func topicByte(c byte) bool {
	return alphanumeric(c) || c == '.' || c == '_' || c == '-'
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Append appends the topic of d's event to dst, for a stream event that of cluster-scoped objects. Match finds its other topics.
func (t *Topics) Append(dst []byte, d *object.Delta) []byte {
	r, namespace := (*object.Resource)(nil), ""
	if d.Stream != nil {
		r = d.Stream.Resource
	} else {
		r, namespace = d.Ref.Resource, d.Ref.Namespace()
	}
	for i := range t.parts {
		switch t.parts[i].Field {
		case subject.FieldGroup:
			dst = append(dst, cmp.Or(r.Group, "core")...)
		case subject.FieldResource:
			dst = append(dst, r.Name...)
		case subject.FieldNamespace:
			dst = append(dst, cmp.Or(namespace, "_")...)
		default:
			dst = append(dst, t.parts[i].Text...)
		}
	}
	return dst
}

// Fixed returns the one topic of all events, or false if the template produces several.
func (t *Topics) Fixed() (string, bool) {
	if len(t.parts) == 1 && t.parts[0].Field == subject.FieldLiteral {
		return t.parts[0].Text, true
	}
	return "", false
}

// Varies reports whether objects of one resource go to topics of their namespaces.
func (t *Topics) Varies() bool {
	return slices.ContainsFunc(t.parts, func(p subject.Part) bool { return p.Field == subject.FieldNamespace })
}

// Match reports whether the template may have produced a topic, for a resource if r is not nil. If a group's dots are next to a literal
// dot, a topic of another resource may match: its readers then see extra stream events, and miss none.
func (t *Topics) Match(topic string, r *object.Resource) bool {
	return matchTopic(t.parts, topic, r)
}

func matchTopic(parts []subject.Part, topic string, r *object.Resource) bool {
	if len(parts) == 0 {
		return topic == ""
	}
	p := parts[0]
	literal := p.Text
	switch {
	case p.Field == subject.FieldLiteral:
	case r != nil && p.Field == subject.FieldGroup:
		literal = cmp.Or(r.Group, "core")
	case r != nil && p.Field == subject.FieldResource:
		literal = r.Name
	default:
		if p.Field == subject.FieldNamespace && strings.HasPrefix(topic, "_") {
			return matchTopic(parts[1:], topic[1:], r)
		}
		if topic == "" || !alphanumeric(topic[0]) {
			return false
		}
		for n := 1; n <= len(topic); n++ {
			// A namespace is a DNS label or "_", a resource's name a DNS label. Only a group has dots.
			if p.Field != subject.FieldGroup && topic[n-1] == '.' {
				return false
			}
			if matchTopic(parts[1:], topic[n:], r) {
				return true
			}
		}
		return false
	}
	rest, ok := strings.CutPrefix(topic, literal)
	return ok && matchTopic(parts[1:], rest, r)
}

// partitionOf returns the partition of a key as Java's default partitioner does:
// toPositive(murmur2(key)) % partitions (org.apache.kafka.clients.producer.internals.BuiltInPartitioner).
func partitionOf(key []byte, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(key []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := 0x9747b28c ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
