package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// KafkaTopic is how topics are created. One that exists is used as it is, and never changed.
type KafkaTopic struct {
	Partitions        int               // 0: 1
	ReplicationFactor int               // 0: 1
	Config            map[string]string // as Kafka calls it: retention.ms, cleanup.policy
}

// kafkaHeadRoom is what a record and its batch may need beside the event: key, headers' names, lengths.
const kafkaHeadRoom = 4 << 10

// absent does what can be done about a topic that is not there: it is created, where told to.
func (k *Kafka) absent(ctx context.Context, t *topic, f *metadata.ResponseTopic) error {
	err := brokerError(int16(kafka.UnknownTopicOrPartition), "")
	if f != nil && f.ErrorCode != 0 {
		err = brokerError(f.ErrorCode, "")
	}
	switch {
	case errors.Is(err, kafka.UnknownTopicOrPartition) && k.cfg.Create != nil:
		if t.partitions.Load() != nil && !t.gone.Load() {
			return nil
		}
		if t.partitions.Load() != nil {
			k.log.Error("topic is gone, with all its records: it is created again", "topic", t.name)
		}
		if err = k.create(ctx, t); err == nil {
			return nil
		}
		err = fmt.Errorf("create topic %s: %w", t.name, err)
		if errors.Is(err, ErrStream) || ctx.Err() != nil {
			return err
		}
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		err = fmt.Errorf("topic %s does not exist, and bus.kafka.create is not set", t.name)
	default:
		err = fmt.Errorf("look up topic %s: %w", t.name, err)
	}
	if t.absent.Load() < 3 {
		return nil // what has just been created, or just been started, is there in a moment
	}
	k.setTroubleOf(t, err)
	advice := "create the topic, or set bus.kafka.create"
	if k.cfg.Create != nil {
		advice = "see what the broker says, and bus.kafka.create; or create the topic"
	}
	advice = cmp.Or(adviceOnConnection(err), advice)
	if suppressed, ok := k.window.First("absent " + t.name); ok {
		k.log.Error("topic cannot be used, its events wait", "topic", t.name, "err", err, "advice", advice, "suppressed", suppressed)
	}
	return nil
}

// create creates t. An error that wraps ErrStream is final.
func (k *Kafka) create(ctx context.Context, t *topic) error {
	c := k.cfg.Create
	req := &createtopics.Request{
		TimeoutMs: int32(RequestTimeout.Milliseconds()),
		Topics: []createtopics.RequestTopic{{
			Name: t.name, NumPartitions: int32(max(c.Partitions, 1)), ReplicationFactor: int16(max(c.ReplicationFactor, 1)),
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Config)) {
		req.Topics[0].Configs = append(req.Topics[0].Configs, createtopics.RequestConfig{Name: name, Value: c.Config[name]})
	}
	addr, err := k.anyBroker()
	if err != nil {
		return err
	}
	r, err := k.ask(ctx, addr, req)
	if err != nil {
		return err
	}
	res, ok := r.(*createtopics.Response)
	if !ok || len(res.Topics) != 1 {
		return errors.New("the broker's answer is about something else")
	}
	err = brokerError(res.Topics[0].ErrorCode, res.Topics[0].ErrorMessage)
	switch {
	case err == nil:
		k.log.Info("topic created", "topic", t.name, "partitions", c.Partitions, "replication_factor", c.ReplicationFactor, "config", c.Config)
	case errors.Is(err, kafka.TopicAlreadyExists): // another agent was faster
		return nil
	case errors.Is(err, kafka.InvalidReplicationFactor):
		// It may be that not all brokers are up yet.
		return fmt.Errorf("%w: set bus.kafka.create.replicationFactor to at most the number of brokers", err)
	case errors.Is(err, kafka.InvalidTopic):
		return fmt.Errorf("%w: %w: Kafka takes '.' and '_' in topics for the same: change bus.kafka.topic", ErrStream, err)
	case errors.Is(err, kafka.InvalidConfiguration), errors.Is(err, kafka.InvalidPartitionNumber):
		return fmt.Errorf("%w: %w: see bus.kafka.create", ErrStream, err)
	}
	return err
}

// anyBroker is the controller where it is known, else any broker.
func (k *Kafka) anyBroker() (net.Addr, error) {
	v := k.view()
	if a, ok := v.brokers[k.controller.Load()]; ok {
		return a, nil
	}
	for _, a := range v.brokers {
		return a, nil
	}
	return nil, brokerError(int16(kafka.BrokerNotAvailable), "")
}

// check looks at the configuration of a topic. It reports false where it cannot be had now. An error is final.
func (k *Kafka) check(ctx context.Context, t *topic, f *metadata.ResponseTopic) (bool, error) {
	addr, err := k.anyBroker()
	if err != nil {
		return false, nil
	}
	r, err := k.ask(ctx, addr, &describeconfigs.Request{Resources: []describeconfigs.RequestResource{{
		ResourceType: int8(kafka.ResourceTypeTopic), ResourceName: t.name,
		ConfigNames: []string{"max.message.bytes", "cleanup.policy", "min.insync.replicas", "retention.ms", "retention.bytes"},
	}}})
	if err != nil {
		if suppressed, ok := k.window.First("describe"); ok {
			k.log.Warn("the topic's configuration cannot be asked for, trying on", "topic", t.name, "err", err, "suppressed", suppressed)
		}
		return false, nil
	}
	res, ok := r.(*describeconfigs.Response)
	if !ok || len(res.Resources) != 1 {
		return false, nil
	}
	if err := brokerError(res.Resources[0].ErrorCode, res.Resources[0].ErrorMessage); err != nil {
		if errors.Is(err, kafka.TopicAuthorizationFailed) || errors.Is(err, kafka.ClusterAuthorizationFailed) {
			if _, ok := k.window.First("describe denied"); ok {
				k.log.Info("the user may not read the topic's configuration, so it is not checked: grant it DescribeConfigs on the topic", "topic", t.name)
			}
			return true, nil
		}
		if errors.Is(err, kafka.UnsupportedVersion) || errors.Is(err, kafka.InvalidRequest) {
			if _, ok := k.window.First("describe unsupported"); ok {
				k.log.Warn("the broker does not tell the topic's configuration, so it is not checked", "topic", t.name, "err", err)
			}
			return true, nil
		}
		if t.unchecked++; t.unchecked > 10 { // before that, it has just been created, perhaps
			if suppressed, ok := k.window.First("describe"); ok {
				k.log.Warn("the topic's configuration cannot be asked for, trying on", "topic", t.name, "err", err, "suppressed", suppressed)
			}
		}
		return false, nil
	}
	config := map[string]string{}
	for _, e := range res.Resources[0].ConfigEntries {
		config[e.ConfigName] = e.ConfigValue
	}
	maxBatch, err := strconv.ParseInt(config["max.message.bytes"], 10, 64)
	if err == nil && maxBatch > 0 {
		t.bound(maxBatch)
		if need := int64(k.cfg.MaxEventBytes) + kafkaHeadRoom; maxBatch < need {
			return false, fmt.Errorf("%w: topic %s: its max.message.bytes is %d, and an event may need %d: kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d, or lower event.maxBytes",
				ErrStream, t.name, maxBatch, need, t.name, need)
		}
	}
	if notes := remarks(config, f, k.cfg.Tombstones, t.name == k.deadTopic); len(notes) > 0 {
		k.log.Info("topic is used as it is", "topic", t.name, "remarks", notes)
	}
	return true, nil
}

// remarks are what is worth knowing about a topic.
func remarks(config map[string]string, f *metadata.ResponseTopic, tombstones, dead bool) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	replicas := 0
	for _, p := range f.Partitions {
		replicas = max(replicas, len(p.ReplicaNodes))
	}
	insync, err := strconv.Atoi(config["min.insync.replicas"])
	switch {
	case err != nil:
	case insync > replicas:
		note("min.insync.replicas is %d and there are %d replicas: it takes no record until that is changed", insync, replicas)
	case replicas == 1:
		note("it has one replica: records are gone with the disk of their broker")
	case insync == 1:
		note("min.insync.replicas is 1: a record is acknowledged when one broker has it, and lost with that one")
	}
	compacts := strings.Contains(config["cleanup.policy"], "compact")
	switch {
	case compacts && dead:
		note("it is compacted: of an object's refused events the last one stays")
	case compacts && tombstones:
		note("it is compacted: of each object the last record stays, and history goes")
	case compacts:
		note("it is compacted, and bus.kafka.tombstones is not set: the last record of a deleted object stays for ever")
	case tombstones && !dead:
		note("it is not compacted: tombstones are of no use in it")
	}
	return notes
}
