package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Bus is where records go. Validate insists on exactly one that is not nil. A `bus` in the file replaces the default
// one, it is not laid over it.
type Bus struct {
	NATS   *NATS   `yaml:"nats,omitempty"`
	Kafka  *Kafka  `yaml:"kafka,omitempty"`
	HTTP   *HTTP   `yaml:"http,omitempty"`
	Stdout *Stdout `yaml:"stdout,omitempty"`
}

// SetDefaults removes the default bus, so that a file which names another one has one bus, not two.
func (b *Bus) SetDefaults() { *b = Bus{} }

// NATS is a JetStream.
type NATS struct {
	URL     string     `yaml:"url"`     // several servers of one cluster are separated by commas
	Subject string     `yaml:"subject"` // template; package publish knows its syntax
	Stream  NATSStream `yaml:"stream"`
	// InboxPrefix is the beginning of the subjects on which the agent receives answers, without the final dot.
	InboxPrefix string   `yaml:"inboxPrefix"`
	Domain      string   `yaml:"domain"` // of JetStream; "": that of the server
	Auth        NATSAuth `yaml:"auth,omitempty"`
	TLS         *TLS     `yaml:"tls,omitempty"` // nil: as the URL's scheme and the server ask for
}

// NATSAuth is who the agent is to a NATS server, in one way at most.
type NATSAuth struct {
	CredsFile    string `yaml:"credsFile,omitempty"` // a JWT and its seed, as nsc writes them
	User         string `yaml:"user,omitempty"`
	PasswordFile string `yaml:"passwordFile,omitempty"`
	TokenFile    string `yaml:"tokenFile,omitempty"`
	NKeySeedFile string `yaml:"nkeySeedFile,omitempty"`
	Insecure     bool   `yaml:"insecure,omitempty"` // the password or token may be sent unencrypted
}

// TLS is what a connection is encrypted and proven with. All empty: the system's authorities, and no certificate of
// one's own. The paths are absolute; the files are read again when they change.
type TLS struct {
	CAFile   string `yaml:"caFile,omitempty"`   // the only authorities that are trusted
	CertFile string `yaml:"certFile,omitempty"` // of the client, with KeyFile
	KeyFile  string `yaml:"keyFile,omitempty"`
}

// SetDefaults sets the defaults of NATS.
func (n *NATS) SetDefaults() { *n = defaultNATS() }

// NATSStream is the stream that takes the records. All but Name only matters where Create is set.
type NATSStream struct {
	Name            string           `yaml:"name"`
	Create          bool             `yaml:"create"` // create it where it does not exist
	Replicas        int              `yaml:"replicas"`
	MaxAge          yamldoc.Duration `yaml:"maxAge"`   // 0: for ever
	MaxBytes        yamldoc.Bytes    `yaml:"maxBytes"` // 0: not bounded
	Discard         Discard          `yaml:"discard"`
	DuplicateWindow yamldoc.Duration `yaml:"duplicateWindow"`
}

// Discard is what a stream does when it is full.
type Discard string

// What a full stream does.
const (
	DiscardNew Discard = "new" // it refuses records: backpressure
	DiscardOld Discard = "old" // it drops the oldest: silent loss, refused where the stream is bounded
)

// Values are both policies.
func (Discard) Values() []string { return names(DiscardNew, DiscardOld) }

// Stdout is the bus that prints JSON lines.
type Stdout struct{}

// Kafka is a Kafka cluster, or what speaks its protocol.
type Kafka struct {
	Brokers     []string     `yaml:"brokers"` // host:port; one that answers is enough, it tells the others
	Topic       string       `yaml:"topic"`   // template; package publish knows its syntax
	Compression Compression  `yaml:"compression"`
	Tombstones  bool         `yaml:"tombstones"`       // a record without a value behind each delete, for compaction
	Create      *KafkaCreate `yaml:"create,omitempty"` // nil: topics are not created
	TLS         *TLS         `yaml:"tls,omitempty"`    // nil: not encrypted
	SASL        *SASL        `yaml:"sasl,omitempty"`   // nil: nobody in particular
}

// SetDefaults sets the defaults of Kafka.
func (k *Kafka) SetDefaults() { *k = defaultKafka() }

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
	return names(CompressionZstd, CompressionLZ4, CompressionSnappy, CompressionGzip, CompressionNone)
}

// KafkaCreate is how topics are created that do not exist. One that exists is left as it is.
type KafkaCreate struct {
	Partitions        int               `yaml:"partitions"`
	ReplicationFactor int               `yaml:"replicationFactor"`
	Config            map[string]string `yaml:"config,omitempty"` // as Kafka calls it: retention.ms, cleanup.policy
}

// SetDefaults sets the defaults of new topics.
func (c *KafkaCreate) SetDefaults() { *c = KafkaCreate{Partitions: 12, ReplicationFactor: 3} }

// retention is the age at which Kafka deletes the records of a topic of this configuration, 0: it is not said here, or
// they are kept for ever.
func (c *KafkaCreate) retention() time.Duration {
	if policy, ok := c.Config[cleanupPolicy]; ok && !strings.Contains(policy, "delete") {
		return 0
	}
	ms, err := strconv.ParseInt(strings.TrimSpace(c.Config[retentionMillis]), 10, 64)
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

// SASL is who the agent is to a Kafka cluster.
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
	return names(SASLPlain, SASLScramSHA256, SASLScramSHA512, SASLOAuthBearer)
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

// HTTP is an endpoint that takes CloudEvents.
type HTTP struct {
	URL         string           `yaml:"url"`
	Batch       int              `yaml:"batch"`   // events in a request at most; above 1: the batched content mode
	Timeout     yamldoc.Duration `yaml:"timeout"` // of a request, from the first byte to the last
	HeadersFile string           `yaml:"headersFile,omitempty"`
	TokenFile   string           `yaml:"tokenFile,omitempty"` // bearer token
	Insecure    bool             `yaml:"insecure,omitempty"`  // headers and token may be sent unencrypted
	TLS         *TLS             `yaml:"tls,omitempty"`       // nil: the system's authorities where the URL is https
}

// SetDefaults sets the defaults of HTTP.
func (h *HTTP) SetDefaults() { *h = defaultHTTP() }

func defaultNATS() NATS {
	return NATS{
		URL:     "nats://127.0.0.1:4222",
		Subject: "kubecdc.{cluster}.object.{group}.{resource}.{namespace}.{name}",
		Stream: NATSStream{
			Name:            "KUBECDC",
			Create:          true,
			Replicas:        1,
			MaxAge:          yamldoc.Duration{Duration: 7 * 24 * time.Hour},
			Discard:         DiscardNew,
			DuplicateWindow: yamldoc.Duration{Duration: 2 * time.Minute},
		},
		InboxPrefix: "_INBOX",
	}
}

// DefaultKafka is what holds where a file says nothing more than kafka. It names no broker.
func DefaultKafka() *Kafka {
	k := defaultKafka()
	return &k
}

func defaultKafka() Kafka {
	return Kafka{Topic: "kubecdc.{cluster}", Compression: CompressionZstd}
}

// DefaultHTTP is what holds where a file says nothing more than http. It has no URL.
func DefaultHTTP() *HTTP {
	h := defaultHTTP()
	return &h
}

func defaultHTTP() HTTP { return HTTP{Batch: 1, Timeout: yamldoc.Duration{Duration: 30 * time.Second}} }
