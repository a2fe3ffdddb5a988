package kafka

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
)

// topicSource is a source of the topics of a template. Brokers list only topics that the reader may
// describe. If some may be hidden, the answer about a namespace without a visible topic is not
// known.
//
//	{cluster}.{namespace}    listed: prod.shop
//	the broker's answer for prod.kubecdc0nobody
//	  it does not exist      the reader may describe any topic: it sees all
//	  it is not permitted    the reader sees prod.shop alone
//
// A reader that may describe all topics except for some is not detected.
type topicSource struct {
	fromkafka.Kafka
	template string
	hidden   atomic.Pointer[visible] // nil: none is, as far as is known
}

// visible are the topics that a reader sees, if others may be hidden from it.
type visible struct{ topics []string }

// nobody stands for a namespace, group or resource that does not exist.
const nobody = "kubecdc0nobody"

// varies reports whether the template makes several topics in one cluster.
func (s *topicSource) varies() bool {
	return strings.Contains(strings.ReplaceAll(s.template, "{cluster}", ""), "{")
}

// Read implements consume.Source. A question about objects that go to some topics alone reads
// these: each has the events about its scopes, and progress. Others may be quiet, and get progress
// once an hour. If none of these topics exists, all are read: they show what was observed.
func (s *topicSource) Read(ctx context.Context, q consume.Query) (consume.Reader, error) {
	cluster := cmp.Or(q.Cluster, s.Cluster)
	all := s.Kafka
	all.OnOpen = func(ctx context.Context, topics []string, errorOf func(context.Context, string) error) {
		s.note(ctx, cluster, topics, errorOf)
	}
	if !s.varies() || !q.StopAtEnd || len(q.Objects) == 0 {
		return all.Read(ctx, q)
	}
	some := all
	some.Match = func(topic string) bool {
		isOfQuery := slices.ContainsFunc(q.Objects, func(o consume.Objects) bool {
			return kafkaconfig.TopicsMeet(s.topicsOf(&o, cmp.Or(cluster, "{}")), topic)
		})
		return isOfQuery && s.Match(topic)
	}
	r, err := some.Read(ctx, q)
	if errors.Is(err, consume.ErrNoStream) {
		return all.Read(ctx, q)
	}
	return r, err
}

// note asks for a topic of a cluster that does not exist, as fromkafka.Kafka.OnOpen does.
func (s *topicSource) note(
	ctx context.Context, cluster string, topics []string, errorOf func(context.Context, string) error,
) {
	s.hidden.Store(nil)
	if !s.varies() {
		return
	}
	absent := strings.NewReplacer("{cluster}", cmp.Or(cluster, s.clusterIn(topics)), "{group}", nobody, "{resource}",
		nobody, "{namespace}", nobody).Replace(s.template)
	if err := errorOf(ctx, absent); err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
		s.hidden.Store(&visible{slices.Sorted(slices.Values(topics))})
	}
}

// clusterIn returns the cluster in the name of a topic, nobody if it is not there.
func (s *topicSource) clusterIn(topics []string) string {
	pattern := regexp.QuoteMeta(s.template)
	for _, field := range []string{"group", "resource", "namespace"} {
		pattern = strings.ReplaceAll(pattern, regexp.QuoteMeta("{"+field+"}"), ".+?")
	}
	pattern = strings.Replace(pattern, regexp.QuoteMeta("{cluster}"), "(.+?)", 1)
	pattern = strings.ReplaceAll(pattern, regexp.QuoteMeta("{cluster}"), ".+?")
	form, err := regexp.Compile("^" + pattern + "$")
	for _, topic := range topics {
		if err != nil {
			break
		}
		if m := form.FindStringSubmatch(topic); len(m) > 1 {
			return m[1]
		}
	}
	return nobody
}

// Reads implements driver.Confined.
func (s *topicSource) Reads(objects []consume.Objects, _ consume.Events, cluster string) (some, all bool) {
	v := s.hidden.Load()
	if v == nil {
		return true, true
	}
	all = len(objects) > 0
	for i := range objects {
		all = all && s.sees(v, &objects[i], cmp.Or(cluster, s.Cluster, "{}"))
	}
	return true, all
}

// sees reports whether all objects go to one topic, which is visible.
func (s *topicSource) sees(v *visible, o *consume.Objects, cluster string) bool {
	topic := s.topicsOf(o, cluster)
	if strings.Contains(strings.ReplaceAll(topic, "{}", ""), "{") {
		return false
	}
	return slices.ContainsFunc(v.topics, func(name string) bool { return kafkaconfig.TopicsMeet(topic, name) })
}

// topicsOf returns the template of the topics to which objects go.
func (s *topicSource) topicsOf(o *consume.Objects, cluster string) string {
	fields := []string{"{cluster}", cluster}
	if o.Namespace != "" {
		fields = append(fields, "{namespace}", o.Namespace)
	}
	if len(o.Groups) == 1 {
		fields = append(fields, "{group}", cmp.Or(o.Groups[0], "core"))
	}
	if o.Resource != "" {
		fields = append(fields, "{resource}", o.Resource)
	}
	return strings.NewReplacer(fields...).Replace(s.template)
}

// Only implements driver.Confined.
func (s *topicSource) Only() string {
	v := s.hidden.Load()
	if v == nil {
		return ""
	}
	return "the reader sees only the topics " + strings.Join(v.topics, ", ")
}
