package kafkaconfig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/object"
)

// DefaultTopic is the default topic template.
const DefaultTopic = "kubecdc.{cluster}"

// MaxTopic is the maximum length of a topic's name (org.apache.kafka.common.internals.Topic).
const MaxTopic = 249

// Topics is a compiled topic template.
type Topics struct {
	template string
	pattern  string // template in its cluster
	parts    []subject.Part
}

// String returns the template.
func (t *Topics) String() string { return t.template }

// Pattern returns the template in its cluster, if the name of that is known.
func (t *Topics) Pattern() string { return t.pattern }

// NewTopics compiles a topic template; "" is DefaultTopic. Placeholders are {cluster}, with the
// value cluster, {group}, {resource} and {namespace}. Topics consist of A-Za-z0-9._- and have at
// most 249 bytes. A group keeps its dots; the core group is "core", the namespace of a
// cluster-scoped object "_".
func NewTopics(template, cluster string) (*Topics, error) {
	template = cmp.Or(template, DefaultTopic)
	if cluster == "" {
		return nil, errors.New("topic template: the cluster has no name")
	}
	parts, err := compileTopic(template, cluster)
	if err != nil {
		return nil, fmt.Errorf("topic template %q: %w", template, err)
	}
	return &Topics{template: template, pattern: InCluster(template, cluster), parts: parts}, nil
}

func compileTopic(template, cluster string) ([]subject.Part, error) {
	known := map[string]subject.Field{
		"group":     subject.FieldGroup,
		"resource":  subject.FieldResource,
		"namespace": subject.FieldNamespace,
	}
	parts, err := subject.Parse(template, func(_ int, c byte) error {
		if !topicByte(c) {
			return fmt.Errorf("character %q: a topic may contain only A-Z a-z 0-9 . _ -", c)
		}
		return nil
	}, func(name string, follows bool) (string, subject.Field, error) {
		if name == "cluster" {
			i := slices.IndexFunc([]byte(cluster), func(c byte) bool { return !topicByte(c) })
			if i >= 0 {
				return "", 0,
					fmt.Errorf(
						"the cluster's name %q has character %q at byte %d: a topic may contain only A-Z a-z 0-9 . _ -",
						cluster, cluster[i], i)
			}
			return cluster, subject.FieldLiteral, nil
		}
		f, ok := known[name]
		switch {
		case ok && follows:
			return "", f,
				fmt.Errorf("{%s} directly after another placeholder: two objects might share a topic by accident", name)
		case !ok:
			return "", f,
				fmt.Errorf("unknown placeholder {%s}, known are {cluster}, {group}, {resource} and {namespace}", name)
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
	if shortest > MaxTopic {
		return nil, fmt.Errorf("yields topics of at least %d bytes, Kafka allows %d", shortest, MaxTopic)
	}
	return parts, nil
}

func topicByte(c byte) bool {
	return alphanumeric(c) || c == '.' || c == '_' || c == '-'
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Append appends the topic of d's event to dst, for a stream event that of cluster-scoped objects.
// Match finds its other topics. d is not the progress of an agent, which goes to the topics of many
// resources.
func (t *Topics) Append(dst []byte, d *object.Delta) []byte {
	if d.Stream != nil {
		return t.AppendOf(dst, d.Stream.Resource, "")
	}
	return t.AppendOf(dst, d.Ref.Resource, d.Ref.Namespace())
}

// AppendOf appends the topic of the objects of a resource in a namespace; "": of those without one.
func (t *Topics) AppendOf(dst []byte, r *object.Resource, namespace string) []byte {
	for i := range t.parts {
		switch t.parts[i].Field {
		case subject.FieldGroup:
			dst = append(dst, cmp.Or(r.Group, "core")...)
		case subject.FieldResource:
			dst = append(dst, r.Name...)
		case subject.FieldNamespace:
			dst = append(dst, cmp.Or(namespace, "_")...)
		case subject.FieldLiteral:
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

// Match reports whether the template may have produced a topic, for a resource if r is not nil. If
// a group's dots are next to a literal dot, a topic of another resource may match: its readers then
// see extra stream events, and miss none.
func (t *Topics) Match(topic string, r *object.Resource) bool {
	pattern := t.pattern
	if r != nil {
		pattern = strings.NewReplacer("{group}", cmp.Or(r.Group, "core"), "{resource}", r.Name).Replace(pattern)
	}
	return TopicsMeet(pattern, topic)
}

// NamespaceIn returns the namespace whose objects of a resource go to a topic, "" for those without
// one. It returns false if none do. The template must have {namespace}.
func (t *Topics) NamespaceIn(topic string, r *object.Resource) (namespace string, ok bool) {
	// All occurrences have the same length.
	fixed := 0
	places := 0
	first := -1
	for i := range t.parts {
		switch t.parts[i].Field {
		case subject.FieldNamespace:
			places++
			if first < 0 {
				first = fixed
			}
		case subject.FieldGroup:
			fixed += len(cmp.Or(r.Group, "core"))
		case subject.FieldResource:
			fixed += len(r.Name)
		case subject.FieldLiteral:
			fixed += len(t.parts[i].Text)
		}
	}
	length := len(topic) - fixed
	if places == 0 || length <= 0 || length%places != 0 {
		return "", false
	}
	namespace = topic[first : first+length/places]
	if namespace == "_" {
		namespace = ""
	}
	var buf [MaxTopic]byte
	if strings.IndexByte(namespace, '.') >= 0 || string(t.AppendOf(buf[:0], r, namespace)) != topic {
		return "", false
	}
	return namespace, true
}

// TopicsMeet reports whether two templates can produce the same topic, in the same cluster of
// Kubernetes. Values of placeholders begin with a letter or digit; only {group} can contain dots.
// For a cluster-scoped object, {namespace} is "_". {} is any text.
func TopicsMeet(a, b string) bool {
	clusterScoped := func(template string) string { return strings.ReplaceAll(template, "{namespace}", "_") }
	for _, a := range []string{a, clusterScoped(a)} {
		for _, b := range []string{b, clusterScoped(b)} {
			if meet(symbols(a), symbols(b), map[[2]int]bool{}) {
				return true
			}
		}
	}
	return false
}

// InCluster replaces {cluster} in a template, if the name of the cluster is known.
func InCluster(template, cluster string) string {
	if cluster == "" {
		return template
	}
	return strings.ReplaceAll(template, "{cluster}", cluster)
}

// symbol matches one byte of a topic, any byte, or any number of bytes.
type symbol struct {
	literal byte // 0: any
	begins  bool // any letter or digit
	noDot   bool // any but a dot
	many    bool
}

func symbols(template string) []symbol {
	var s []symbol
	for len(template) > 0 {
		name, rest, ok := strings.Cut(strings.TrimPrefix(template, "{"), "}")
		switch {
		case !ok || template[0] != '{' || name == "cluster": // {cluster} is the same in both
			s = append(s, symbol{literal: template[0]})
			template = template[1:]
		default:
			s = append(s, symbol{begins: name != "", noDot: name != ""}, symbol{
				noDot: name != "" && name != "group",
				many:  true,
			})
			template = rest
		}
	}
	return s
}

// meet reports whether a and b match a common text. seen has the pairs of lengths already tried.
func meet(a, b []symbol, seen map[[2]int]bool) bool {
	for len(a) > 0 && len(b) > 0 && !a[0].many && !b[0].many {
		if !a[0].shares(b[0]) {
			return false
		}
		a, b = a[1:], b[1:]
	}
	at := [2]int{len(a), len(b)}
	if seen[at] {
		return false
	}
	seen[at] = true
	if len(a) == 0 && len(b) == 0 || len(a) > 0 && a[0].many && meet(a[1:], b, seen) ||
		len(b) > 0 && b[0].many && meet(a, b[1:], seen) {
		return true
	}
	if len(a) == 0 || len(b) == 0 || !a[0].shares(b[0]) {
		return false
	}
	if !a[0].many {
		a = a[1:]
	}
	if !b[0].many {
		b = b[1:]
	}
	return meet(a, b, seen)
}

func (s symbol) shares(t symbol) bool {
	switch {
	case s.literal != 0 && t.literal != 0:
		return s.literal == t.literal
	case s.begins && t.literal != 0:
		return alphanumeric(t.literal)
	case t.begins && s.literal != 0:
		return alphanumeric(s.literal)
	case s.literal == '.':
		return !t.noDot
	case t.literal == '.':
		return !s.noDot
	}
	return true
}

// MatchOf returns a function that reports whether a template may have produced a topic. An empty
// cluster matches any name.
func MatchOf(template, cluster string) (func(topic string) bool, error) {
	topics, err := NewTopics(template, cmp.Or(cluster, "-"))
	if err != nil {
		return nil, err
	}
	if cluster == "" {
		topics.pattern = strings.ReplaceAll(topics.template, "{cluster}", "{}")
	}
	return func(topic string) bool { return topics.Match(topic, nil) }, nil
}
