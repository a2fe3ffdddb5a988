package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// validateBus looks at the bus, and at what else has to fit it.
func (c *Config) validateBus(path *field.Path) field.ErrorList {
	b := &c.Bus
	list := onlyOne(path, "bus", true, choice{"nats", b.NATS != nil}, choice{"kafka", b.Kafka != nil}, choice{"http", b.HTTP != nil},
		choice{"stdout", b.Stdout != nil})
	switch {
	case len(list) > 0:
	case b.NATS != nil:
		list = b.NATS.validate(path.Child("nats"))
	case b.Kafka != nil:
		list = b.Kafka.validate(path.Child("kafka"), c.Event.MaxBytes)
	case b.HTTP != nil:
		list = b.HTTP.validate(path.Child("http"), c.Event.Mode)
	}
	return list
}

// choice is a member of a mapping of which one is to be chosen.
type choice struct {
	name string
	is   bool
}

// onlyOne finds that none of the choices is there, where one is needed, or several are.
func onlyOne(path *field.Path, what string, needed bool, choices ...choice) field.ErrorList {
	var all, got []string
	for _, c := range choices {
		all = append(all, c.name)
		if c.is {
			got = append(got, c.name)
		}
	}
	switch {
	case len(got) == 0 && needed:
		return field.ErrorList{field.Required(path, fmt.Sprintf("must name one %s, %s, got none", what, listed(all, "or")))}
	case len(got) > 1:
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("must name one %s only, got %s", what, listed(got, "and")))}
	}
	return nil
}

// listed is "a, b and c".
func listed(words []string, conjunction string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

func (n *NATS) validate(path *field.Path) field.ErrorList {
	list := validateServers(n.URL, path)
	if n.Subject == "" {
		list = append(list, field.Required(path.Child("subject"), "must not be empty"))
	}
	s, at := n.Stream, path.Child("stream")
	if !streamName.MatchString(s.Name) {
		list = append(list, field.Invalid(at.Child("name"), s.Name,
			`must be 1 to 255 printable characters without spaces and none of . * > " / \`))
	}
	list = append(list, inLimit(at.Child("replicas"), yamldoc.Count(s.Replicas))...)
	list = append(list, inLimit(at.Child("maxAge"), s.MaxAge)...)
	if s.MaxBytes < 0 {
		list = append(list, field.Invalid(at.Child("maxBytes"), s.MaxBytes, "must not be negative"))
	}
	list = append(list, inEnum(at.Child("discard"), s.Discard)...)
	if s.Discard == DiscardOld && s.MaxBytes > 0 {
		list = append(list, field.Invalid(at.Child("discard"), s.Discard,
			"must be new where maxBytes bounds the stream, or records would be dropped silently"))
	}
	list = append(list, inLimit(at.Child("duplicateWindow"), s.DuplicateWindow)...)
	if !inboxPrefix.MatchString(n.InboxPrefix) {
		list = append(list, field.Invalid(path.Child("inboxPrefix"), n.InboxPrefix,
			"must be a subject such as _INBOX_kubecdc: printable characters without spaces, * and >, and no dot at the end"))
	}
	if !jetStreamDomain.MatchString(n.Domain) {
		list = append(list, field.Invalid(path.Child("domain"), n.Domain, "must be printable characters without spaces, dots, * and >"))
	}
	if wrong := n.Auth.validate(path.Child("auth")); len(wrong) > 0 {
		list = append(list, wrong...)
	} else {
		list = append(list, n.validateSecrecy(path)...)
	}
	return append(list, n.TLS.validate(path.Child("tls"))...)
}

var (
	streamName      = regexp.MustCompile(`^[!#-)+,\-0-=?-\[\]-~]{1,255}$`)
	inboxPrefix     = regexp.MustCompile(`^[!-)+-\-/-=?-~]+(\.[!-)+-\-/-=?-~]+)*$`)
	jetStreamDomain = regexp.MustCompile(`^[!-)+-\-/-=?-~]*$`)
)

func (a *NATSAuth) validate(path *field.Path) field.ErrorList {
	list := onlyOne(path, "way", false, choice{"credsFile", a.CredsFile != ""}, choice{"user", a.User != "" || a.PasswordFile != ""},
		choice{"tokenFile", a.TokenFile != ""}, choice{"nkeySeedFile", a.NKeySeedFile != ""})
	list = append(list, together(path, "user", a.User, "passwordFile", a.PasswordFile)...)
	for _, f := range []struct{ name, path string }{
		{"credsFile", a.CredsFile},
		{"passwordFile", a.PasswordFile},
		{"tokenFile", a.TokenFile},
		{"nkeySeedFile", a.NKeySeedFile},
	} {
		list = append(list, secretFile(path.Child(f.name), f.path)...)
	}
	return list
}

// together finds that one of two keys is there without the other.
func together(path *field.Path, a, aValue, b, bValue string) field.ErrorList {
	if (aValue == "") == (bValue == "") {
		return nil
	}
	if aValue == "" {
		a, b = b, a
	}
	return field.ErrorList{field.Required(path, fmt.Sprintf("has %s, and needs %s beside it", a, b))}
}

// secretFile finds what is no path of a file with a secret. It does not repeat the value: it may be the secret itself.
func secretFile(path *field.Path, file string) field.ErrorList {
	if file == "" || absolutePath.MatchString(file) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "must be the absolute path of a file that holds it, such as /etc/kubecdc/"+
		fileNames()[strings.ToLower(path.String()[strings.LastIndexByte(path.String(), '.')+1:])]+"; the secret itself never stands here")}
}

// fileNames are examples, by key in lower case.
func fileNames() map[string]string {
	return map[string]string{
		"credsfile": "nats.creds", "nkeyseedfile": "nats.nk", "urlfile": "webhook", "headersfile": "headers",
		"clientsecretfile": "client-secret", "keyfile": "redaction.key", "passwordfile": "password", "tokenfile": "token",
	}
}

// plainFile finds what is no path of a file.
func plainFile(path *field.Path, file, example string) field.ErrorList {
	if file == "" || absolutePath.MatchString(file) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, file, "must be an absolute path, such as "+example)}
}

// validate is for nil, too.
func (t *TLS) validate(path *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	list := plainFile(path.Child("caFile"), t.CAFile, "/etc/kubecdc/ca.crt")
	list = append(list, plainFile(path.Child("certFile"), t.CertFile, "/etc/kubecdc/tls.crt")...)
	if t.KeyFile != "" && !absolutePath.MatchString(t.KeyFile) {
		list = append(list, field.Forbidden(path.Child("keyFile"),
			"must be the absolute path of a file that holds it, such as /etc/kubecdc/tls.key; the secret itself never stands here"))
	}
	return append(list, together(path, "certFile", t.CertFile, "keyFile", t.KeyFile)...)
}

// validateServers never repeats the URL: its user part may be a password. path is that of the mapping with the url.
func validateServers(servers string, path *field.Path) field.ErrorList {
	var list field.ErrorList
	all := strings.Split(servers, ",")
	for i, server := range all {
		which := ""
		if len(all) > 1 {
			which = fmt.Sprintf("server %d ", i+1)
		}
		if what := wrongServer(strings.TrimSpace(server), path); what != "" {
			list = append(list, field.Forbidden(path.Child("url"),
				"must be nats://host:port, or several servers of one cluster separated by commas: "+which+what))
		}
	}
	return list
}

// wrongServer says what is wrong with the URL of a server, without repeating anything of it.
func wrongServer(server string, path *field.Path) string {
	scheme, _, ok := strings.Cut(server, "://")
	u, err := url.Parse(server)
	switch {
	case server == "":
		return "is empty"
	case !ok:
		return "has no scheme, write nats:// before it"
	case !slices.Contains(serverSchemes(), scheme):
		return "has another scheme than " + strings.Join(serverSchemes(), ", ")
	case err != nil: // url.Error repeats the URL
		return "cannot be read; write a host, a colon and a number behind ://"
	case u.User != nil:
		return fmt.Sprintf("has a user or a password in it; leave them out: secrets come only from files, which %s names", path.Child("auth"))
	case u.RawQuery != "" || u.Fragment != "":
		return "has a ? or a # in it; end it with the port"
	case u.Hostname() == "":
		return "has no host"
	}
	return ""
}

func serverSchemes() []string { return []string{"nats", "tls", "ws", "wss"} }

func (h *HTTP) validate(path *field.Path, mode EventMode) field.ErrorList {
	list := validateEndpoint(h.URL, path.Child("url"))
	list = append(list, inLimit(path.Child("batch"), yamldoc.Count(h.Batch))...)
	if h.Batch > 1 && mode == EventBinary {
		list = append(list, field.Invalid(path.Child("batch"), h.Batch, "must be 1 where event.mode is binary: a batch is made of structured events"))
	}
	list = append(list, inLimit(path.Child("timeout"), h.Timeout)...)
	list = append(list, validateHTTPSecrecy(path, "url", h.URL, h.HeadersFile, h.TokenFile, h.Insecure)...)
	return append(list, validateHTTPFiles(path, h.URL, h.HeadersFile, h.TokenFile, h.TLS)...)
}

// validateHTTPFiles looks at what the agent shows to an HTTP server, and wants to see of it.
func validateHTTPFiles(path *field.Path, url, headersFile, tokenFile string, tls *TLS) field.ErrorList {
	list := secretFile(path.Child("headersFile"), headersFile)
	list = append(list, secretFile(path.Child("tokenFile"), tokenFile)...)
	if tls != nil && strings.HasPrefix(url, "http://") {
		list = append(list, field.Forbidden(path.Child("tls"), "is of no use where the url begins with http://; write https:// there, or leave it out"))
	}
	return append(list, tls.validate(path.Child("tls"))...)
}

// validateEndpoint never repeats the URL: its user part may be a password.
func validateEndpoint(endpoint string, path *field.Path) field.ErrorList {
	if endpoint == "" {
		return field.ErrorList{field.Required(path, "is missing: a URL such as https://host/path")}
	}
	if what := wrongEndpoint(endpoint); what != "" {
		return field.ErrorList{field.Forbidden(path, "must be a URL such as https://host/path: "+what)}
	}
	return nil
}

// wrongEndpoint says what is wrong with the URL of an HTTP server, without repeating anything of it.
func wrongEndpoint(endpoint string) string {
	scheme, _, ok := strings.Cut(endpoint, "://")
	u, err := url.Parse(endpoint)
	switch {
	case !ok:
		return "has no scheme, write https:// before it"
	case scheme != "http" && scheme != "https":
		return "has another scheme than http, https"
	case err != nil: // url.Error repeats the URL
		return "cannot be read"
	case u.User != nil:
		return "has a user or a password in it; leave them out: secrets come only from files, which keys beside it name"
	case u.Fragment != "":
		return "has a # in it"
	case u.Hostname() == "":
		return "has no host"
	case !isPort(u.Port()):
		return "has a port that is none: they go from 1 to 65535"
	}
	return ""
}

// isPort is for what a URL can have behind the colon, too: nothing.
func isPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

func (k *Kafka) validate(path *field.Path, maxEvent yamldoc.Bytes) field.ErrorList {
	list := k.validateBrokers(path.Child("brokers"))
	if k.Topic == "" {
		list = append(list, field.Required(path.Child("topic"), "must not be empty"))
	}
	list = append(list, inEnum(path.Child("compression"), k.Compression)...)
	if k.Create != nil {
		list = append(list, k.Create.validate(path.Child("create"), maxEvent)...)
	}
	list = append(list, k.TLS.validate(path.Child("tls"))...)
	if k.SASL == nil {
		return list
	}
	if wrong := k.SASL.validate(path.Child("sasl")); len(wrong) > 0 {
		return append(list, wrong...)
	}
	return append(list, k.validateSecrecy(path)...)
}

func (k *Kafka) validateBrokers(path *field.Path) field.ErrorList {
	const form = "must be host:port, such as kafka-0:9092"
	if len(k.Brokers) == 0 {
		return field.ErrorList{field.Required(path, "must name at least one broker, such as kafka-0:9092; it tells the others")}
	}
	var list field.ErrorList
	for i, broker := range k.Brokers {
		at := path.Index(i)
		host, port, err := net.SplitHostPort(broker)
		switch {
		case strings.Contains(broker, "@"):
			list = append(list, field.Forbidden(at, form+": it has a user or a password in it; leave them out: secrets come only from files, see sasl"))
		case strings.Contains(broker, "://"):
			list = append(list, field.Invalid(at, broker, form+", without a scheme; encryption is asked for by tls"))
		case strings.Contains(broker, ","):
			list = append(list, field.Invalid(at, broker, form+"; each broker is an item of the list"))
		case err != nil || host == "" || port == "" || !isPort(port) || !brokerHost.MatchString(host):
			list = append(list, field.Invalid(at, broker, form))
		}
	}
	return append(list, unique(k.Brokers, path)...)
}

// brokerHost is a name or an address, of IPv6 too.
var brokerHost = regexp.MustCompile(`^[A-Za-z0-9_.:%-]+$`)

func (c *KafkaCreate) validate(path *field.Path, maxEvent yamldoc.Bytes) field.ErrorList {
	list := inLimit(path.Child("partitions"), yamldoc.Count(c.Partitions))
	list = append(list, inLimit(path.Child("replicationFactor"), yamldoc.Count(c.ReplicationFactor))...)
	at := path.Child("config")
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range c.Config {
			if !yield(k) {
				return
			}
		}
	}) {
		if !topicConfig.MatchString(key) {
			list = append(list, field.Forbidden(at.Child(yamldoc.Shorten(yamldoc.Mask(key))), "must be what Kafka calls it, such as retention.ms or cleanup.policy"))
		}
	}
	if s, ok := c.Config[retentionMillis]; ok {
		if _, err := strconv.ParseInt(s, 10, 64); err != nil {
			list = append(list, field.Invalid(at.Child(retentionMillis), s, "must be a number of milliseconds, such as 604800000 for seven days, or -1 for ever"))
		}
	}
	if s, ok := c.Config[cleanupPolicy]; ok && !cleanup.MatchString(s) {
		list = append(list, field.Invalid(at.Child(cleanupPolicy), s, `must be delete, compact or "compact,delete"`))
	}
	if s, ok := c.Config[inSyncReplicas]; ok {
		n, err := strconv.ParseUint(s, 10, 31)
		switch {
		case err != nil || n < 1:
			list = append(list, field.Invalid(at.Child(inSyncReplicas), s, "must be a number from 1"))
		case n > uint64(max(0, c.ReplicationFactor)): // not negative
			list = append(list, field.Invalid(at.Child(inSyncReplicas), s,
				fmt.Sprintf("must not be more than replicationFactor (%d), or nothing could be written", c.ReplicationFactor)))
		}
	}
	return append(list, c.validateMessageBytes(at.Child(maxMessageBytes), maxEvent)...)
}

const (
	inSyncReplicas  = "min.insync.replicas"
	maxMessageBytes = "max.message.bytes"

	// kafkaMessageBytes is the max.message.bytes of a topic that does not say (https://kafka.apache.org/documentation/#topicconfigs).
	kafkaMessageBytes = 1048588
	// kafkaRoom is what package publish wants beside the event: its key, the names of headers, lengths.
	kafkaRoom = 4 << 10
)

var (
	topicConfig = regexp.MustCompile(`^[a-z][a-z0-9.]*[a-z0-9]$`)
	cleanup     = regexp.MustCompile(`^(delete|compact|compact, ?delete|delete, ?compact)$`)
)

func (c *KafkaCreate) validateMessageBytes(path *field.Path, maxEvent yamldoc.Bytes) field.ErrorList {
	s, ok := c.Config[maxMessageBytes]
	need := int64(maxEvent) + kafkaRoom
	if !ok {
		if need <= kafkaMessageBytes {
			return nil
		}
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be there, and at least %d, for event.maxBytes (%v) and %v beside it: "+
			"where it is missing, a topic takes %d", need, maxEvent, yamldoc.Bytes(kafkaRoom), kafkaMessageBytes))}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil || n < 0:
		return field.ErrorList{field.Invalid(path, s, "must be a number of bytes, such as 1048588, without a unit")}
	case n < need:
		return field.ErrorList{field.Invalid(path, s, fmt.Sprintf("must be at least %d, for event.maxBytes (%v) and %v beside it: raise it, or lower that",
			need, maxEvent, yamldoc.Bytes(kafkaRoom)))}
	}
	return nil
}

func (s *SASL) validate(path *field.Path) field.ErrorList {
	if s.Mechanism == "" {
		return field.ErrorList{field.Required(path.Child("mechanism"), "must be "+yamldoc.OneOf(s.Mechanism)+": the one that the brokers are configured for")}
	}
	list := inEnum(path.Child("mechanism"), s.Mechanism)
	if len(list) > 0 {
		return list
	}
	needs := func(key, what string) {
		list = append(list, field.Required(path.Child(key), fmt.Sprintf("is missing: %s needs %s", s.Mechanism, what)))
	}
	useless := func(key string, is bool, with string) {
		if is {
			list = append(list, field.Forbidden(path.Child(key), fmt.Sprintf("is of no use with %s, only with %s; leave it out", s.Mechanism, with)))
		}
	}
	if s.Mechanism == SASLOAuthBearer {
		list = append(list, onlyOne(path, "source of tokens", true, choice{"tokenFile", s.TokenFile != ""}, choice{"oauth", s.OAuth != nil})...)
		useless("user", s.User != "", "PLAIN and SCRAM")
		useless("passwordFile", s.PasswordFile != "", "PLAIN and SCRAM")
	} else {
		if s.User == "" {
			needs("user", "a user")
		}
		if s.PasswordFile == "" {
			needs("passwordFile", "a file that holds the password")
		}
		useless("tokenFile", s.TokenFile != "", string(SASLOAuthBearer))
		useless("oauth", s.OAuth != nil, string(SASLOAuthBearer))
	}
	list = append(list, secretFile(path.Child("passwordFile"), s.PasswordFile)...)
	list = append(list, secretFile(path.Child("tokenFile"), s.TokenFile)...)
	if s.OAuth != nil {
		list = append(list, s.OAuth.validate(path.Child("oauth"))...)
	}
	return list
}

func (o *OAuth) validate(path *field.Path) field.ErrorList {
	list := validateEndpoint(o.TokenURL, path.Child("tokenURL"))
	if o.ClientID == "" {
		list = append(list, field.Required(path.Child("clientID"), "is missing: the name by which the authorization server knows the agent"))
	}
	if o.ClientSecretFile == "" {
		list = append(list, field.Required(path.Child("clientSecretFile"), "is missing: the absolute path of a file that holds the secret"))
	}
	list = append(list, secretFile(path.Child("clientSecretFile"), o.ClientSecretFile)...)
	list = append(list, unique(o.Scopes, path.Child("scopes"))...)
	return append(list, plainFile(path.Child("caFile"), o.CAFile, "/etc/kubecdc/ca.crt")...)
}
