package kafka

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
)

// Config says where a bus publishes to. The fields without a key are not part of the configuration file.
type Config struct {
	Brokers     []string     `yaml:"brokers"`          // host:port; one that answers is enough, it tells the others
	Topic       string       `yaml:"topic"`            // template, see NewTopics; "": DefaultTopic
	Compression Compression  `yaml:"compression"`      // "": zstd
	Tombstones  bool         `yaml:"tombstones"`       // an event of op d is followed by a record with its key and no value
	Create      *Topic       `yaml:"create,omitempty"` // how topics are created that do not exist; nil: none is
	TLS         *publish.TLS `yaml:"tls,omitempty"`    // nil: not encrypted
	SASL        *SASL        `yaml:"sasl,omitempty"`   // nil: no authentication

	Cluster       string `yaml:"-"` // of Kubernetes: {cluster} in topics
	MaxEventBytes int    `yaml:"-"` // the largest event that will be published: topics must take it
	DeadLetter    string `yaml:"-"` // topic of what is refused, {cluster} allowed; "": none
	// Retiring reports whether a scope is no longer selected. What is wrong with a topic that only such scopes wait for does not make
	// the bus unready. nil: none is.
	Retiring func(scope string) bool `yaml:"-"`
	Fence    publish.Fence           `yaml:"-"` // asked before each batch, and before each write of one to the socket; nil: everything passes
}

// Compression is how batches of records are compressed.
type Compression string

// The ways of compression.
const (
	CompressionZstd   Compression = "zstd"
	CompressionLZ4    Compression = "lz4"
	CompressionSnappy Compression = "snappy"
	CompressionGzip   Compression = "gzip"
	CompressionNone   Compression = "none"
)

// Values are all ways.
func (Compression) Values() []string {
	return check.Names(CompressionZstd, CompressionLZ4, CompressionSnappy, CompressionGzip, CompressionNone)
}

// Topic is how topics are created that do not exist. One that exists is left as it is.
type Topic struct {
	Partitions        int               `yaml:"partitions"`        // 0: 1
	ReplicationFactor int               `yaml:"replicationFactor"` // 0: 1
	Config            map[string]string `yaml:"config,omitempty"`  // by the names of Kafka: retention.ms, cleanup.policy
}

// SetDefaults implements yamldoc.Defaulter.
func (t *Topic) SetDefaults() { *t = Topic{Partitions: 12, ReplicationFactor: 3} }

// retention is the age at which Kafka deletes the records of a topic of this configuration, 0: it is not said here, or
// they are kept for ever.
func (t *Topic) retention() time.Duration {
	if policy, ok := t.Config[cleanupPolicy]; ok && !strings.Contains(policy, "delete") {
		return 0
	}
	ms, err := strconv.ParseInt(strings.TrimSpace(t.Config[retentionMillis]), 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// Topic configurations that this package looks into (https://kafka.apache.org/documentation/#topicconfigs).
const (
	cleanupPolicy   = "cleanup.policy"
	retentionMillis = "retention.ms"
)

// SASL is who the agent is to a Kafka cluster. Passwords and tokens come from files, which are read again at each connection.
type SASL struct {
	Mechanism    Mechanism `yaml:"mechanism"`
	User         string    `yaml:"user,omitempty"`         // with PLAIN and SCRAM
	PasswordFile string    `yaml:"passwordFile,omitempty"` // with PLAIN and SCRAM
	TokenFile    string    `yaml:"tokenFile,omitempty"`    // with OAUTHBEARER; the file is read again at each connection
	OAuth        *OAuth    `yaml:"oauth,omitempty"`        // with OAUTHBEARER
	Insecure     bool      `yaml:"insecure,omitempty"`     // the password or token may be sent unencrypted
}

// Mechanism is a SASL mechanism, as IANA has registered it.
type Mechanism string

// The mechanisms.
const (
	SASLPlain       Mechanism = "PLAIN"
	SASLScramSHA256 Mechanism = "SCRAM-SHA-256"
	SASLScramSHA512 Mechanism = "SCRAM-SHA-512"
	SASLOAuthBearer Mechanism = "OAUTHBEARER" // RFC 7628
)

// Values are all mechanisms.
func (Mechanism) Values() []string {
	return check.Names(SASLPlain, SASLScramSHA256, SASLScramSHA512, SASLOAuthBearer)
}

// OAuth is where tokens are got by the client credentials grant (RFC 6749, section 4.4).
type OAuth struct {
	TokenURL         string   `yaml:"tokenURL"`
	ClientID         string   `yaml:"clientID"`
	ClientSecretFile string   `yaml:"clientSecretFile"`
	Scopes           []string `yaml:"scopes,omitempty"`
	CAFile           string   `yaml:"caFile,omitempty"`   // the only authorities that are trusted; "": the system's
	Insecure         bool     `yaml:"insecure,omitempty"` // the client's secret may be sent unencrypted
}

// DefaultDeadTopic is the topic of dead letters if the file does not say.
const DefaultDeadTopic = "kubecdc.{cluster}.dead"

// SpareDeadTopic is the default if bus.kafka.topic may make DefaultDeadTopic, for a namespace called dead for instance. The names of
// namespaces, resources and groups do not begin with "_".
const SpareDeadTopic = "kubecdc.{cluster}._dead"

// Driver is the bus "kafka" of the configuration.
func Driver() *driver.Driver {
	return &driver.Driver{
		Name: "kafka", Schemes: []string{"kafka"}, URL: "kafka://host:port/topic",
		Default: func() driver.Config {
			c := new(Config)
			c.SetDefaults()
			return c
		},
		Keys:       keys(),
		DeadLetter: &driver.DeadLetter{Key: "topic", Value: check.Key{Pattern: deadTopic.String()}, Default: defaultDeadTopic, Validate: validateDeadTopic},
		Copies:     Copies,
	}
}

// SetDefaults implements yamldoc.Defaulter.
func (c *Config) SetDefaults() { *c = Config{Topic: DefaultTopic, Compression: CompressionZstd} }

// SetURL implements driver.Config.
func (c *Config) SetURL(url string) error {
	_, rest, _ := strings.Cut(url, ":") // several brokers of one cluster, separated by commas, are no URL
	servers, topic, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	c.Brokers, c.Topic = strings.Split(servers, ","), cmp.Or(topic, c.Topic)
	return nil
}

// defaultDeadTopic returns none if topics are not created: one that nobody has created takes no records.
func defaultDeadTopic(bus driver.Config, cluster string) string {
	c, ok := bus.(*Config)
	switch {
	case !ok || c.Create == nil:
		return ""
	case topicsMeet(inCluster(c.Topic, cluster), inCluster(DefaultDeadTopic, cluster)):
		return SpareDeadTopic
	}
	return DefaultDeadTopic
}

// Open implements driver.Config.
func (c *Config) Open(e *driver.Env) (publish.Bus, error) {
	o := *c
	o.Cluster, o.MaxEventBytes, o.DeadLetter, o.Retiring, o.Fence = e.Cluster, e.MaxEventBytes, e.DeadLetter, e.Retiring, e.Fence
	if c.showsSecret() {
		e.Log.Warn("the secret goes to the brokers unencrypted, whoever listens to the network has it: name bus.kafka.tls, or a SCRAM mechanism",
			"mechanism", string(c.SASL.Mechanism))
	}
	return New(o, e.Log, e.Metrics)
}

// showsSecret reports whether a secret leaves this machine unencrypted.
func (c *Config) showsSecret() bool {
	return c.SASL.sends() && c.TLS == nil && slices.ContainsFunc(c.Brokers, func(broker string) bool {
		host, _, _ := net.SplitHostPort(broker)
		return !check.IsLoopbackHost(host)
	})
}

// Destinations implements driver.Named.
func (c *Config) Destinations(cluster string) (func(*object.Delta) string, error) {
	topics, err := NewTopics(c.Topic, cluster)
	if err != nil {
		return nil, err
	}
	return func(d *object.Delta) string {
		if d.Stream != nil {
			return "every partition of its topics"
		}
		return string(topics.Append(nil, d))
	}, nil
}

// Summary implements driver.Config.
func (c *Config) Summary() driver.Summary {
	servers := driver.Servers(c.Brokers)
	storage, mechanism := "topics have to exist", ""
	if t := c.Create; t != nil {
		storage = fmt.Sprintf("topics are created where they are missing (partitions: %d, replicas: %d)", t.Partitions, t.ReplicationFactor)
	}
	if c.SASL != nil {
		mechanism = string(c.SASL.Mechanism)
	}
	s := driver.Summary{
		Kind: "kafka", Brokers: c.Brokers, Topic: c.Topic,
		Log:      "Kafka " + strings.Join(servers, ",") + ", topic " + c.Topic,
		Servers:  servers,
		Identity: "Kafka, topic " + c.Topic,
		Text:     fmt.Sprintf("Kafka %s, %s", strings.Join(c.Brokers, ","), storage) + driver.With(c.TLS.Summary(), mechanism),
	}
	if c.Create != nil {
		s.Retention, s.RetentionKey = c.Create.retention(), "create.config."+retentionMillis
	}
	return s
}

// Hints implements driver.Hinter. They are for kcat, which everybody who has Kafka can get. What it needs to know of encryption and users is
// more than a hint.
func (c *Config) Hints(h *driver.Hinting) []driver.Hint {
	if c.TLS != nil || c.SASL != nil {
		return nil
	}
	kcat, topic := "kcat -b "+strings.Join(c.Brokers, ","), inCluster(c.Topic, h.Cluster)
	if strings.Contains(topic, "{") {
		return []driver.Hint{{Command: kcat + " -L", Purpose: "which topics there are"}}
	}
	return []driver.Hint{
		{Command: kcat + " -C -o end -t " + topic, Purpose: "each change as it happens"},
		{Command: kcat + " -C -e -t " + topic, Purpose: "all that the topic holds"},
	}
}
