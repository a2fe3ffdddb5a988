package kafkaconfig

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
)

// Policies of topics (https://kafka.apache.org/documentation/#topicconfigs_cleanup.policy).
const (
	PolicyCompact = "compact"
	PolicyDelete  = "delete"
)

// With returns the settings with a cleanup policy; nil for nil.
func (t *Topic) With(policy string) *Topic {
	if t == nil {
		return nil
	}
	all := *t
	all.Config = maps.Clone(t.Config)
	if all.Config == nil {
		all.Config = map[string]string{}
	}
	all.Config[cleanupPolicy] = policy
	return &all
}

// DefaultStreamTopic returns the topic for the stream events of a table: "tables.prod" and
// "tables.prod.stream", "tables.{resource}" and "tables._stream". No value of a placeholder begins
// with "_s".
func DefaultStreamTopic(template string) string {
	rest, known := template, 0
	for {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			return template + ".stream"
		}
		if !strings.HasPrefix(rest[i:], "{cluster}") {
			return template[:known+i] + "_stream"
		}
		known += i + len("{cluster}")
		rest = template[known:]
	}
}

// ValidateChangelog implements driver.Changelogger.
func (c *Config) ValidateChangelog(to, streamTopic *field.Path, topic string, f *driver.Facts) field.ErrorList {
	var list field.ErrorList
	if c.Create != nil && strings.Contains(c.Create.Config[cleanupPolicy], PolicyDelete) {
		policy := to.Child("create", "config").Key(cleanupPolicy)
		list = append(list, field.Invalid(policy, c.Create.Config[cleanupPolicy], "must be "+PolicyCompact+
			", or left out, with format: debezium: the topic is the table, and keeps the last row of each object"))
	}
	used := cmp.Or(topic, DefaultStreamTopic(c.Topic))
	names, err := NewTopics(used, f.ClusterName())
	if err == nil {
		if _, fixed := names.Fixed(); !fixed {
			err = fmt.Errorf(
				"topic template %q: {cluster} is the only placeholder, because all stream events go to one topic",
				used)
		}
	}
	meets := func(topic string) bool { return TopicsMeet(InCluster(used, f.Cluster), InCluster(topic, f.Cluster)) }
	switch b, ok := f.Source.(*Config); {
	case err != nil:
		list = append(list, field.Invalid(streamTopic, used, err.Error()))
	case meets(c.Topic):
		list = append(list, field.Invalid(streamTopic, used, fmt.Sprintf(
			"must differ from the topics of the rows (%s), such as %s", to.Child("topic"),
			DefaultStreamTopic(c.Topic))))
	case ok && meets(b.Topic) && driver.ShareServer(b.Brokers, c.Brokers):
		list = append(list, field.Invalid(streamTopic, used,
			"is a topic of the bus itself: the relay would read its own output; use another topic"))
	}
	return list
}
