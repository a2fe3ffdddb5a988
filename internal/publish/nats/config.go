package nats

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// Config configures the destination of a Bus. Fields without a key are not part of the configuration file.
type Config struct {
	URL     string `yaml:"url"`     // nats://host:port, several of one cluster separated by commas; the part before @ is never logged
	Subject string `yaml:"subject"` // template, see subject.New; "" for the default
	Stream  Stream `yaml:"stream"`
	// InboxPrefix is the prefix of the subjects of acknowledgements and responses, without the final dot; "" for _INBOX.
	InboxPrefix string       `yaml:"inboxPrefix"`
	Domain      string       `yaml:"domain"` // the JetStream domain of the stream; "" for the domain of the server
	Auth        Auth         `yaml:"auth,omitempty"`
	TLS         *publish.TLS `yaml:"tls,omitempty"` // nil: if the URL's scheme or the server requires it, with the system's authorities

	driver.Env `yaml:"-"`
	// DeadLetterOptional permits an existing stream that does not accept DeadLetter. Otherwise the bus refuses such a stream.
	DeadLetterOptional bool `yaml:"-"`
	// AckTimeout is the time that the first attempt waits for its acknowledgement; later attempts wait longer. 0: 5 s.
	AckTimeout time.Duration `yaml:"-"`
}

// Stream describes the stream of the records. All fields except Name matter only if Create is set and the stream does not exist: an
// existing stream is used as it is, and never changed.
type Stream struct {
	Name            string           `yaml:"name"` // "": DefaultStream
	Create          bool             `yaml:"create"`
	Replicas        int              `yaml:"replicas"` // 0: 1
	MaxAge          yamldoc.Duration `yaml:"maxAge"`   // 0: forever
	MaxBytes        yamldoc.Bytes    `yaml:"maxBytes"` // 0: unlimited
	Discard         Discard          `yaml:"discard"`
	DuplicateWindow yamldoc.Duration `yaml:"duplicateWindow"` // 0: 2 min
}

// Discard is the policy of a full stream.
type Discard string

// The policies of a full stream.
const (
	DiscardNew Discard = "new" // rejects new records: backpressure
	DiscardOld Discard = "old" // drops the oldest records: silent loss, refused for a stream with bounds
)

// Values returns both policies.
func (Discard) Values() []string { return check.Names(DiscardNew, DiscardOld) }

// Auth names the files with credentials; at most one kind. They are read again at each connect.
type Auth struct {
	CredsFile    string `yaml:"credsFile,omitempty"` // a user's JWT and seed, as nsc writes them
	User         string `yaml:"user,omitempty"`      // with PasswordFile
	PasswordFile string `yaml:"passwordFile,omitempty"`
	TokenFile    string `yaml:"tokenFile,omitempty"`
	NKeySeedFile string `yaml:"nkeySeedFile,omitempty"`
	Insecure     bool   `yaml:"insecure,omitempty"` // the password or token may be sent unencrypted to other machines
}

// DefaultDeadSubject is the default subject of dead letters.
const DefaultDeadSubject = "kubecdc.{cluster}.dead"

// Driver returns the driver of the bus "nats".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name: "nats", Schemes: serverSchemes(), URL: "nats://host:port",
		Default: func() driver.Config {
			c := new(Config)
			c.SetDefaults()
			return c
		},
		Keys: keys(),
		DeadLetter: &driver.DeadLetter{
			Key: "subject", Value: check.Key{Pattern: deadSubject.String()},
			Default:  func(driver.Config, string) string { return DefaultDeadSubject },
			Validate: validateDeadSubject,
		},
		ObjectStore: true, LastEvents: true,
	}
}

// SetDefaults implements yamldoc.Defaulter.
func (c *Config) SetDefaults() {
	*c = Config{
		URL: "nats://127.0.0.1:4222", Subject: subject.Default, InboxPrefix: defaultInbox,
		Stream: Stream{
			Name: DefaultStream, Create: true, Replicas: 1, MaxAge: yamldoc.Duration{Duration: 7 * 24 * time.Hour},
			Discard: DiscardNew, DuplicateWindow: yamldoc.Duration{Duration: defaultDuplicateWindow},
		},
	}
}

// SetURL implements driver.Config.
func (c *Config) SetURL(url string) error {
	c.URL = url // a comma-separated list of servers is not a URL, so no parsing
	return nil
}

// Open implements driver.Config.
func (c *Config) Open(e *driver.Env) (publish.Bus, error) {
	o := *c
	o.Env, o.DeadLetterOptional = *e, e.DeadLetter == DefaultDeadSubject
	return New(o, e.Log, e.Metrics)
}

// Destinations implements driver.Named.
func (c *Config) Destinations(cluster string) (func(*object.Delta) string, error) {
	subjects, err := subject.New(c.Subject, cluster)
	if err != nil {
		return nil, err
	}
	return func(d *object.Delta) string { return string(subjects.Append(nil, d)) }, nil
}

// Summary implements driver.Config.
func (c *Config) Summary() driver.Summary {
	servers := driver.Servers(strings.Split(c.URL, ","))
	s := driver.Summary{
		Kind: "nats", URL: c.URL, Stream: c.Stream.Name, Subject: c.Subject,
		Log:      "NATS " + strings.Join(servers, ",") + ", stream " + c.Stream.Name,
		Servers:  servers,
		Identity: fmt.Sprintf("NATS, stream %s, subjects %s", c.Stream.Name, c.Subject),
		Text:     fmt.Sprintf("%s, stream %s, %s", c.URL, c.Stream.Name, c.Stream.summary()) + driver.With(c.TLS.Summary(), c.Auth.summary()),
	}
	if c.Stream.Create {
		s.Retention, s.RetentionKey = c.Stream.MaxAge.Duration, "stream.maxAge"
	}
	return s
}

// summary describes the retention of the stream for people.
func (s *Stream) summary() string {
	if !s.Create {
		return "which must exist"
	}
	age, size := "for ever", "of any size"
	if s.MaxAge.Duration > 0 {
		age = s.MaxAge.String()
	}
	if s.MaxBytes > 0 {
		size = "up to " + s.MaxBytes.String()
	}
	return fmt.Sprintf("created if it is missing (kept %s, %s, replicas: %d)", age, size, s.Replicas)
}

// summary describes the authentication for people; "" without any.
func (a *Auth) summary() string {
	switch {
	case a.CredsFile != "":
		return "credentials " + a.CredsFile
	case a.User != "":
		return "user " + a.User
	case a.TokenFile != "":
		return "a token"
	case a.NKeySeedFile != "":
		return "an NKey"
	}
	return ""
}

// Hints implements driver.Hinter.
func (c *Config) Hints(h *driver.Hinting) []driver.Hint {
	tail := "kubecdc tail"
	switch {
	case (c.Auth != Auth{} || c.TLS != nil || c.Domain != "") && h.ConfigFile != "":
		tail += " --config " + h.ConfigFile
	case !h.Found:
		tail += " --bus " + c.URL
	}
	hints := []driver.Hint{
		{Command: tail, Purpose: "each change as it happens"},
		{Command: tail + " --diff", Purpose: "what changed, and who changed it"},
		{Command: tail + " --since 1h", Purpose: "the last hour"},
	}
	if h.Embedded {
		hints = append(hints, driver.Hint{Command: "nats sub --server " + c.URL + " 'kubecdc.>'", Purpose: "the records themselves, for any NATS client"})
	}
	return hints
}
