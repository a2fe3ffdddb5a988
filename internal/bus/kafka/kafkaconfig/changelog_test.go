package kafkaconfig_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
)

// TestDefaultStreamTopic checks that the topic of a table's stream events is none of the table's
// topics.
func TestDefaultStreamTopic(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"tables":                              "tables.stream",
		"tables.{cluster}":                    "tables.{cluster}.stream",
		"{cluster}.{cluster}":                 "{cluster}.{cluster}.stream",
		"tables.{resource}":                   "tables._stream",
		"{cluster}.tables.{group}.{resource}": "{cluster}.tables._stream",
		"{resource}":                          "_stream",
		"tables.{namespace}.{resource}":       "tables._stream",
	} {
		got := kafkaconfig.DefaultStreamTopic(template)
		if got != want {
			t.Errorf("for %s: %s, want %s", template, got, want)
		}
		if kafkaconfig.TopicsMeet(template, got) {
			t.Errorf("%s may be a topic of the table %s", got, template)
		}
		if topics, err := kafkaconfig.NewTopics(got, "prod"); err != nil {
			t.Error(err)
		} else if _, isFixed := topics.Fixed(); !isFixed {
			t.Errorf("%s is not one topic", got)
		}
	}
}
