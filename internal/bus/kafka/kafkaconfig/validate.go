package kafkaconfig

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

func keys() map[string]check.Key {
	tokenURL := check.URL()
	tokenURL.Required = true
	return map[string]check.Key{
		"brokers":                     {Required: true, NotEmpty: true},
		"brokers[]":                   {Pattern: `^[^@/, ]+:[0-9]{1,5}$`, Message: "must be host:port"},
		"topic":                       {NotEmpty: true},
		"create.partitions":           {Limit: check.Limit{Low: yamldoc.Count(1), High: yamldoc.Count(10000)}},
		"create.replicationFactor":    {Limit: check.Limit{Low: yamldoc.Count(1), High: yamldoc.Count(100)}},
		"sasl.mechanism":              {Required: true},
		"sasl.oauth.tokenURL":         tokenURL,
		"sasl.oauth.clientID":         {Required: true},
		"sasl.oauth.clientSecretFile": {Required: true},
	}
}

// Validate implements driver.Config.
func (c *Config) Validate(path *field.Path, f *driver.Facts) field.ErrorList {
	list := c.validateBrokers(path.Child("brokers"))
	if c.Topic == "" {
		list = append(list, field.Required(path.Child("topic"), "must not be empty"))
	} else if _, err := NewTopics(c.Topic, f.ClusterName()); err != nil {
		list = append(list, check.Template(path.Child("topic"), DefaultTopic, err))
	}
	list = append(list, check.InEnum(path.Child("compression"), c.Compression)...)
	if c.Create != nil {
		list = append(list, c.Create.validate(path.Child("create"), f.MaxEventBytes)...)
	}
	list = append(list, c.TLS.Validate(path.Child("tls"))...)
	if b, ok := f.Source.(*Config); ok && TopicsMeet(InCluster(b.Topic, f.Cluster), InCluster(c.Topic, f.Cluster)) &&
		driver.ShareServer(b.Brokers, c.Brokers) {
		list = append(list,
			field.Forbidden(path,
				"has topics of the bus itself: the relay would read its own output; use another topic or cluster"))
	}
	if c.SASL == nil {
		return list
	}
	if wrong := c.SASL.validate(path.Child("sasl")); len(wrong) > 0 {
		return append(list, wrong...)
	}
	return append(list, c.validateSecrecy(path)...)
}

func (c *Config) validateBrokers(path *field.Path) field.ErrorList {
	const form = "must be host:port, such as kafka-0:9092"
	if len(c.Brokers) == 0 {
		return field.ErrorList{
			field.Required(path, "must name at least one broker, such as kafka-0:9092; the agent discovers the others"),
		}
	}
	var list field.ErrorList
	for i, broker := range c.Brokers {
		at := path.Index(i)
		host, port, err := net.SplitHostPort(broker)
		switch {
		case strings.Contains(broker, "@"):
			list = append(list,
				field.Forbidden(at,
					form+": it has a user or a password in it; remove them: secrets come only from files, see sasl"))
		case strings.Contains(broker, "://"):
			list = append(list, field.Invalid(at, broker, form+", without a scheme; tls enables encryption"))
		case strings.Contains(broker, ","):
			list = append(list, field.Invalid(at, broker, form+"; each broker is an item of the list"))
		case err != nil || host == "" || port == "" || !check.IsPort(port) || !brokerHost.MatchString(host):
			list = append(list, field.Invalid(at, broker, form))
		}
	}
	return append(list, check.Unique(c.Brokers, path)...)
}

// brokerHost matches a name or an address, including IPv6.
var brokerHost = regexp.MustCompile(`^[A-Za-z0-9_.:%-]+$`)

func (t *Topic) validate(path *field.Path, maxEvent yamldoc.Bytes) field.ErrorList {
	known := keys()
	list := check.InLimit(path.Child("partitions"), yamldoc.Count(t.Partitions), known["create.partitions"].Limit)
	list = append(list,
		check.InLimit(path.Child("replicationFactor"), yamldoc.Count(t.ReplicationFactor),
			known["create.replicationFactor"].Limit)...)
	at := path.Child("config")
	for _, key := range slices.Sorted(maps.Keys(t.Config)) {
		list = append(list, check.If(!topicConfig.MatchString(key),
			field.Forbidden(at.Child(yamldoc.Shorten(yamldoc.Mask(key))),
				"must be the name of a topic setting of Kafka, such as retention.ms or cleanup.policy"))...)
	}
	if s, ok := t.Config[retentionMillis]; ok {
		if _, err := strconv.ParseInt(s, 10, 64); err != nil {
			list = append(list,
				field.Invalid(at.Child(retentionMillis), s,
					"must be a number of milliseconds, such as 604800000 for seven days, or -1 for unlimited"))
		}
	}
	if s, ok := t.Config[cleanupPolicy]; ok && !cleanup.MatchString(s) {
		list = append(list, field.Invalid(at.Child(cleanupPolicy), s, `must be delete, compact or "compact,delete"`))
	}
	if s, ok := t.Config[inSyncReplicas]; ok {
		n, err := strconv.ParseUint(s, 10, 31)
		switch {
		case err != nil || n < 1:
			list = append(list, field.Invalid(at.Child(inSyncReplicas), s, "must be a number from 1"))
		case n > uint64(max(0, t.ReplicationFactor)): // not negative
			list = append(list, field.Invalid(at.Child(inSyncReplicas), s,
				fmt.Sprintf("must not be more than replicationFactor (%d), or nothing could be written",
					t.ReplicationFactor)))
		}
	}
	return append(list, t.validateMessageBytes(at.Child(maxMessageBytes), maxEvent)...)
}

const (
	inSyncReplicas  = "min.insync.replicas"
	maxMessageBytes = "max.message.bytes"

	kafkaMessageBytes = 1048588 // default of max.message.bytes (https://kafka.apache.org/documentation/#topicconfigs)
)

// HeadRoom is the maximum size of a record and its batch beside the event: key, header names,
// lengths.
const HeadRoom = 4 << 10

var (
	topicConfig = regexp.MustCompile(`^[a-z][a-z0-9.]*[a-z0-9]$`)
	cleanup     = regexp.MustCompile(`^(delete|compact|compact, ?delete|delete, ?compact)$`)
)

func (t *Topic) validateMessageBytes(path *field.Path, maxEvent yamldoc.Bytes) field.ErrorList {
	s, ok := t.Config[maxMessageBytes]
	need := int64(maxEvent) + HeadRoom
	if !ok {
		if need <= kafkaMessageBytes {
			return nil
		}
		return field.ErrorList{
			field.Required(path, fmt.Sprintf("must be set to at least %d, for event.maxBytes (%v) plus %v: "+
				"Kafka's default is %d", need, maxEvent, yamldoc.Bytes(HeadRoom), kafkaMessageBytes)),
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil || n < 0:
		return field.ErrorList{field.Invalid(path, s, "must be a number of bytes, such as 1048588, without a unit")}
	case n < need:
		return field.ErrorList{
			field.Invalid(path, s,
				fmt.Sprintf("must be at least %d, for event.maxBytes (%v) plus %v: raise it, or lower event.maxBytes",
					need, maxEvent, yamldoc.Bytes(HeadRoom))),
		}
	}
	return nil
}

func (s *SASL) validate(path *field.Path) field.ErrorList {
	if s.Mechanism == "" {
		return field.ErrorList{
			field.Required(path.Child("mechanism"),
				"must be "+yamldoc.OneOf(s.Mechanism)+": the one that the brokers are configured for"),
		}
	}
	list := check.InEnum(path.Child("mechanism"), s.Mechanism)
	if len(list) > 0 {
		return list
	}
	needs := func(key, value, what string) {
		list = append(list,
			check.If(value == "",
				field.Required(path.Child(key), fmt.Sprintf("is missing: %s needs %s", s.Mechanism, what)))...)
	}
	useless := func(key string, is bool, with string) {
		list = append(list,
			check.If(is,
				field.Forbidden(path.Child(key),
					fmt.Sprintf("has no effect with %s, only with %s; remove it", s.Mechanism, with)))...)
	}
	if s.Mechanism == SASLOAuthBearer {
		list = append(list,
			check.OnlyOne(path, "source of tokens", true, check.Choice{Name: "tokenFile", Is: s.TokenFile != ""},
				check.Choice{Name: "oauth", Is: s.OAuth != nil})...)
		useless("user", s.User != "", "PLAIN and SCRAM")
		useless("passwordFile", s.PasswordFile != "", "PLAIN and SCRAM")
	} else {
		needs("user", s.User, "a user")
		needs("passwordFile", s.PasswordFile, "a file that holds the password")
		useless("tokenFile", s.TokenFile != "", string(SASLOAuthBearer))
		useless("oauth", s.OAuth != nil, string(SASLOAuthBearer))
	}
	list = append(list, check.SecretFile(path.Child("passwordFile"), s.PasswordFile)...)
	list = append(list, check.SecretFile(path.Child("tokenFile"), s.TokenFile)...)
	if s.OAuth != nil {
		list = append(list, s.OAuth.validate(path.Child("oauth"))...)
	}
	return list
}

func (o *OAuth) validate(path *field.Path) field.ErrorList {
	list := check.Endpoint(o.TokenURL, path.Child("tokenURL"))
	list = append(list,
		check.If(o.ClientID == "",
			field.Required(path.Child("clientID"), "is missing: the agent's client id at the authorization server"))...)
	list = append(list,
		check.If(o.ClientSecretFile == "",
			field.Required(path.Child("clientSecretFile"),
				"is missing: the absolute path of a file that holds the secret"))...)
	list = append(list, check.SecretFile(path.Child("clientSecretFile"), o.ClientSecretFile)...)
	list = append(list, check.Unique(o.Scopes, path.Child("scopes"))...)
	return append(list, check.PlainFile(path.Child("caFile"), o.CAFile, "/etc/kubecdc/ca.crt")...)
}

// validateSecrecy checks the secrets that are sent to the brokers, or to the source of tokens.
// c.SASL must not be nil.
func (c *Config) validateSecrecy(path *field.Path) field.ErrorList {
	s, at := c.SASL, path.Child("sasl")
	var list field.ErrorList
	if o := s.OAuth; o != nil && !o.Insecure && check.Plaintext(o.TokenURL) {
		list = append(list,
			check.Exposed(at.Child("oauth", "clientSecretFile"),
				"write https:// in "+at.Child("oauth", "tokenURL").String(),
				at.Child("oauth", "insecure").String()+": true"))
	}
	if !s.InPlaintext(c.TLS) || !c.isRemote() {
		return list
	}
	what := "passwordFile"
	if s.Mechanism == SASLOAuthBearer {
		what = "mechanism"
	}
	return append(list,
		check.Exposed(at.Child(what),
			"require TLS with tls: {} in "+path.String()+", at the brokers' port for it, or use a SCRAM mechanism",
			at.Child("insecure").String()+": true"))
}

var deadTopic = regexp.MustCompile(`^([A-Za-z0-9._-]|\{cluster\}){1,249}$`)

func validateDeadTopic(path *field.Path, value string, bus driver.Config, f *driver.Facts) field.ErrorList {
	if !deadTopic.MatchString(value) {
		return field.ErrorList{field.Invalid(path, value, "must be a topic such as "+DefaultDeadTopic+
			`: at most 249 letters, digits, ".", "_" and "-"; {cluster} is the only placeholder`)}
	}
	if c, ok := bus.(*Config); ok && TopicsMeet(InCluster(value, f.Cluster), InCluster(c.Topic, f.Cluster)) {
		return field.ErrorList{
			field.Invalid(path, value,
				"must differ from the topics of the events (bus.kafka.topic), such as "+SpareDeadTopic),
		}
	}
	return nil
}
