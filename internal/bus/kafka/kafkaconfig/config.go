package kafkaconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Config is the settings of the bus. Fields without a key are not part of the configuration file.
type Config struct {
	Brokers     []string    `yaml:"brokers"`     // host:port; one that answers is enough, it names the others
	Topic       string      `yaml:"topic"`       // template, see NewTopics; "": DefaultTopic
	Compression Compression `yaml:"compression"` // "": zstd
	// an event of op d is followed by a record with its key and no value
	Tombstones bool         `yaml:"tombstones"`
	Create     *Topic       `yaml:"create,omitempty"` // settings of missing topics, which are created; nil: none is
	TLS        *publish.TLS `yaml:"tls,omitempty"`    // nil: not encrypted
	SASL       *SASL        `yaml:"sasl,omitempty"`   // nil: no authentication

	driver.Env `yaml:"-"`
}

// Compression is the compression of record batches.
type Compression string

// The compressions.
const (
	CompressionZstd   Compression = "zstd"
	CompressionLZ4    Compression = "lz4"
	CompressionSnappy Compression = "snappy"
	CompressionGzip   Compression = "gzip"
	CompressionNone   Compression = "none"
)

// Values returns all compressions.
func (Compression) Values() []string {
	return check.Names(CompressionZstd, CompressionLZ4, CompressionSnappy, CompressionGzip, CompressionNone)
}

// Topic has the settings of topics that are created. Existing topics are not changed.
type Topic struct {
	Partitions        int               `yaml:"partitions"`        // 0: 1
	ReplicationFactor int               `yaml:"replicationFactor"` // 0: 1
	Config            map[string]string `yaml:"config,omitempty"`  // by Kafka's names: retention.ms, cleanup.policy
}

// Switch implements yamldoc.Switch.
func (*Topic) Switch() {}

// SetDefaults implements yamldoc.Defaulter.
func (t *Topic) SetDefaults() { *t = Topic{Partitions: 12, ReplicationFactor: 3} }

// retention returns the age at which Kafka deletes the records of a topic; 0: never, or not
// configured.
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

// Topic configurations that this package reads
// (https://kafka.apache.org/documentation/#topicconfigs).
const (
	cleanupPolicy   = "cleanup.policy"
	retentionMillis = "retention.ms"
)

// SASL has the agent's credentials for a Kafka cluster. Passwords and tokens come from files, which
// each connection reads again.
type SASL struct {
	Mechanism    Mechanism `yaml:"mechanism"`
	User         string    `yaml:"user,omitempty"`         // with PLAIN and SCRAM
	PasswordFile string    `yaml:"passwordFile,omitempty"` // with PLAIN and SCRAM
	TokenFile    string    `yaml:"tokenFile,omitempty"`    // with OAUTHBEARER
	OAuth        *OAuth    `yaml:"oauth,omitempty"`        // with OAUTHBEARER
	Insecure     bool      `yaml:"insecure,omitempty"`     // the password or token may be sent unencrypted
}

// Mechanism is a SASL mechanism, by its IANA name.
type Mechanism string

// The mechanisms.
const (
	SASLPlain       Mechanism = "PLAIN"
	SASLScramSHA256 Mechanism = "SCRAM-SHA-256"
	SASLScramSHA512 Mechanism = "SCRAM-SHA-512"
	SASLOAuthBearer Mechanism = "OAUTHBEARER" // RFC 7628
)

// Values returns all mechanisms.
func (Mechanism) Values() []string {
	return check.Names(SASLPlain, SASLScramSHA256, SASLScramSHA512, SASLOAuthBearer)
}

// OAuth is the source of tokens by the client credentials grant (RFC 6749, section 4.4).
type OAuth struct {
	TokenURL         string   `yaml:"tokenURL"`
	ClientID         string   `yaml:"clientID"`
	ClientSecretFile string   `yaml:"clientSecretFile"`
	Scopes           []string `yaml:"scopes,omitempty"`
	CAFile           string   `yaml:"caFile,omitempty"`   // the only trusted authorities; "": the system's
	Insecure         bool     `yaml:"insecure,omitempty"` // the client's secret may be sent unencrypted
}

// DefaultDeadTopic is the default topic of dead letters.
const DefaultDeadTopic = "kubecdc.{cluster}.dead"

// SpareDeadTopic is the default if bus.kafka.topic may produce DefaultDeadTopic. No namespace,
// resource or group begins with "_".
const SpareDeadTopic = "kubecdc.{cluster}._dead"

// Driver returns the driver of the bus "kafka".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name:    "kafka",
		Schemes: []string{"kafka"},
		URL:     "kafka://host:port/topic",
		Default: driver.Defaults[Config],
		Keys:    keys(),
		DeadLetter: &driver.DeadLetter{
			Key: "topic",
			Value: check.Key{
				Pattern: deadTopic.String(),
			},
			Default:  defaultDeadTopic,
			Validate: validateDeadTopic,
		},
		Copies: 2, // the encoded event, and the batch in flight

		LastProgress: true,
	}
}

// SetDefaults implements yamldoc.Defaulter.
func (c *Config) SetDefaults() { *c = Config{Topic: DefaultTopic, Compression: CompressionZstd} }

// SetURL implements driver.Config.
func (c *Config) SetURL(url string) error {
	_, rest, _ := strings.Cut(url, ":") // several brokers, separated by commas, are not a valid URL
	servers, topic, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	c.Brokers, c.Topic = strings.Split(servers, ","), cmp.Or(topic, c.Topic)
	return nil
}

// defaultDeadTopic returns "" unless topics are created: a topic that does not exist accepts no
// records.
func defaultDeadTopic(bus driver.Config, cluster string) string {
	c, ok := bus.(*Config)
	switch {
	case !ok || c.Create == nil:
		return ""
	case TopicsMeet(InCluster(c.Topic, cluster), InCluster(DefaultDeadTopic, cluster)):
		return SpareDeadTopic
	}
	return DefaultDeadTopic
}

// isRemote reports whether a broker's name is that of another machine.
func (c *Config) isRemote() bool {
	return slices.ContainsFunc(c.Brokers, func(broker string) bool {
		host, _, err := net.SplitHostPort(broker)
		return err == nil && !check.IsLoopbackHost(host)
	})
}

// Destinations implements driver.Named.
func (c *Config) Destinations(cluster string) (func(*object.Delta) string, error) {
	topics, err := NewTopics(c.Topic, cluster)
	if err != nil {
		return nil, err
	}
	return func(d *object.Delta) string {
		if d.Stream != nil || d.Report != nil {
			return "every partition of its topics"
		}
		return string(topics.Append(nil, d))
	}, nil
}

// Summary implements driver.Config.
func (c *Config) Summary() driver.Summary {
	servers := driver.Servers(c.Brokers)
	storage, mechanism := "topics must exist", ""
	if t := c.Create; t != nil {
		storage = fmt.Sprintf("missing topics are created (partitions: %d, replicas: %d)", t.Partitions,
			t.ReplicationFactor)
	}
	if c.SASL != nil {
		mechanism = string(c.SASL.Mechanism)
	}
	s := driver.Summary{
		Kind:     "kafka",
		Brokers:  c.Brokers,
		Topic:    c.Topic,
		Log:      "Kafka " + strings.Join(servers, ",") + ", topic " + c.Topic,
		Servers:  servers,
		Identity: "Kafka, topic " + c.Topic,
		Text: fmt.Sprintf("Kafka %s, %s", strings.Join(c.Brokers, ","), storage) +
			driver.With(c.TLS.Summary(), mechanism),
	}
	if c.Create != nil {
		s.Retention, s.RetentionKey = c.Create.retention(), "create.config."+retentionMillis
	}
	return s
}

// Hints implements driver.Hinter, for kcat. It omits them with TLS or SASL, whose settings in kcat
// are too long for a hint.
func (c *Config) Hints(h *driver.Hinting) []driver.Hint {
	if c.TLS != nil || c.SASL != nil {
		return nil
	}
	kcat, topic := "kcat -b "+strings.Join(c.Brokers, ","), InCluster(c.Topic, h.Cluster)
	if strings.Contains(topic, "{") {
		return []driver.Hint{{Command: kcat + " -L", Purpose: "the topics"}}
	}
	return []driver.Hint{
		{Command: kcat + " -C -o end -t " + topic, Purpose: "each change as it happens"},
		{Command: kcat + " -C -e -t " + topic, Purpose: "all records of the topic"},
	}
}

// ShowsSecret reports whether a secret leaves this machine unencrypted.
func (c *Config) ShowsSecret() bool { return c.SASL.sends() && c.TLS == nil && c.isRemote() }

// SetAccess implements driver.Readable.
func (c *Config) SetAccess(a *driver.Access) error {
	if flag := a.Given(); flag != "" {
		return fmt.Errorf(
			"--%s is not for Kafka: give the topic as in kafka://host:port/topic, and credentials in the file (--config)",
			flag)
	}
	for _, broker := range c.Brokers {
		if _, _, err := net.SplitHostPort(broker); err != nil {
			return errors.New("--bus: want kafka://host:port/topic, several brokers of one cluster separated by commas")
		}
	}
	c.TLS = c.TLS.WithCA(a.CAFile)
	return nil
}

// SplitsNamespaces implements driver.Splitter.
func (c *Config) SplitsNamespaces() bool {
	topics, err := NewTopics(c.Topic, "-")
	return err != nil || topics.Varies()
}

// InPlaintext reports whether s must not leave this machine, because a password or token would be
// sent without TLS.
func (s *SASL) InPlaintext(t *publish.TLS) bool {
	return s.sends() && !s.Insecure && t == nil
}

// sends reports whether a password or token is sent. SCRAM proves a password without sending it.
func (s *SASL) sends() bool {
	return s != nil && (s.Mechanism == SASLPlain || s.Mechanism == SASLOAuthBearer)
}
