package natsconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Config configures the destination of a Bus. Fields without a key are not part of the
// configuration file.
type Config struct {
	// nats://host:port, several of one cluster separated by commas; the part before @ is never
	// logged
	URL     string `yaml:"url"`
	Subject string `yaml:"subject"` // template, see subject.New; "" for the default
	Stream  Stream `yaml:"stream"`
	// InboxPrefix is the prefix of the subjects of acknowledgements and responses, without the
	// final dot; "" for _INBOX.
	InboxPrefix string `yaml:"inboxPrefix"`
	// the JetStream domain of the stream; "" for the domain of the server
	Domain string  `yaml:"domain"`
	Reader *Reader `yaml:"reader,omitempty"` // nil: commands and relays may read all
	Auth   Auth    `yaml:"auth,omitempty"`
	// nil: if the URL's scheme or the server requires it, with the system's authorities
	TLS *publish.TLS `yaml:"tls,omitempty"`

	driver.Env `yaml:"-"`
	// Token returns the token for the next connection; "": none. It is called before the server is
	// dialled, and the token is sent on that connection only. nil: Auth applies.
	Token func() string `yaml:"-"`

	// CredsFlag is the file that a command line names; "": the credentials are those of the
	// settings.
	CredsFlag string `yaml:"-"`
	// DeadLetterOptional permits an existing stream that does not accept DeadLetter. Otherwise the
	// bus refuses such a stream.
	DeadLetterOptional bool `yaml:"-"`
	// AckTimeout is the time that the first attempt waits for its acknowledgement; later attempts
	// wait longer. 0: 5 s.
	AckTimeout time.Duration `yaml:"-"`
}

// Stream describes the stream of the records. All fields except Name matter only if Create is set
// and the stream does not exist: an existing stream is used as it is, and never changed.
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

// DefaultStream is the default name of the stream.
const DefaultStream = "KUBECDC"

// DefaultDuplicateWindow is also the server's default.
const DefaultDuplicateWindow = 2 * time.Minute

// DefaultInbox is the default prefix of the subjects of responses: nats.InboxPrefix without its
// dot.
const DefaultInbox = "_INBOX"

// DefaultDeadSubject is the default subject of dead letters.
const DefaultDeadSubject = "kubecdc.{cluster}.dead"

// Driver returns the driver of the bus "nats".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name:    "nats",
		Schemes: serverSchemes(),
		URL:     "nats://host:port",
		Flags:   accessFlags(),
		Default: driver.Defaults[Config],
		Keys:    keys(),
		DeadLetter: &driver.DeadLetter{
			Key:      "subject",
			Value:    check.Key{Pattern: deadSubject.String()},
			Default:  func(driver.Config, string) string { return DefaultDeadSubject },
			Validate: validateDeadSubject,
		},
		ObjectStore:  true,
		LastEvents:   true,
		LastProgress: true,
	}
}

// The flags of the commands that read the bus.
const (
	flagCreds  = "creds"
	flagStream = "stream"
	flagInbox  = "inbox-prefix"
	flagDomain = "domain"
)

func accessFlags() []driver.Flag {
	return []driver.Flag{
		{Name: flagCreds, Help: "`file` with a NATS user's credentials, as nsc writes them"},
		{
			Name: flagStream,
			Help: "`name` of the JetStream stream (default: that of the file, else " + DefaultStream + ")",
			Log:  true,
		},
		{
			Name: flagInbox,
			Help: "`prefix` of the subjects on which the NATS server answers, for a user with a private inbox\n" +
				"(default: that of --config, else " + DefaultInbox + ")",
		},
		{
			Name: flagDomain,
			Help: "`name` of the JetStream domain that has the stream (default: that of --config, else that of the server)",
		},
	}
}

// SetDefaults implements yamldoc.Defaulter.
func (c *Config) SetDefaults() {
	*c = Config{
		URL:         "nats://127.0.0.1:4222",
		Subject:     subject.Default,
		InboxPrefix: DefaultInbox,
		Stream: Stream{
			Name:            DefaultStream,
			Create:          true,
			Replicas:        1,
			MaxAge:          yamldoc.Duration{Duration: 7 * 24 * time.Hour},
			Discard:         DiscardNew,
			DuplicateWindow: yamldoc.Duration{Duration: DefaultDuplicateWindow},
		},
	}
}

// SetURL implements driver.Config.
func (c *Config) SetURL(url string) error {
	c.URL = url // a comma-separated list of servers is not a URL, so no parsing
	return nil
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
		Kind:     "nats",
		URL:      c.URL,
		Stream:   c.Stream.Name,
		Subject:  c.Subject,
		Log:      "NATS " + strings.Join(servers, ",") + ", stream " + c.Stream.Name,
		Servers:  servers,
		Identity: fmt.Sprintf("NATS, stream %s, subjects %s", c.Stream.Name, c.Subject),
		Text: fmt.Sprintf("%s, stream %s, %s", c.URL, c.Stream.Name, c.Stream.summary()) +
			driver.With(c.TLS.Summary(), c.Auth.summary()),
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
	case h.Named:
		tail += " --data-dir " + h.Embedded
	case h.Embedded == "":
		tail += " --bus " + c.URL
	}
	hints := []driver.Hint{
		{Command: tail, Purpose: "each change as it happens"},
		{Command: tail + " --diff", Purpose: "what changed, and who changed it"},
		{Command: tail + " --since 1h", Purpose: "the last hour"},
	}
	if h.Embedded != "" {
		hints = append(hints, driver.Hint{
			Command: "nats sub --context " + filepath.Join(h.Embedded, "bus.json") + " 'kubecdc.>'",
			Purpose: "the records themselves; other NATS clients take url and token of this file",
		})
	}
	return hints
}

// keys returns the constraints of the keys.
func keys() map[string]check.Key {
	const day = 24 * time.Hour
	server := ` *(` + strings.Join(serverSchemes(), "|") + `)://[^@,:/ ][^@,]*`
	return withReaderKeys(map[string]check.Key{
		"url": {
			Pattern: `^` + server + `(,` + server + `)*$`,
			Message: "must be nats://host:port, without user and password",
		},
		"inboxPrefix":     {Pattern: inboxPrefix.String()},
		"domain":          {Pattern: jetStreamDomain.String()},
		"auth":            {Most: 2, Together: []string{"user", "passwordFile"}},
		"stream.name":     {Pattern: streamName.String()},
		"stream.replicas": {Limit: check.Limit{Low: yamldoc.Count(1), High: yamldoc.Count(5)}},
		"stream.maxAge": {Limit: check.Limit{
			Low: yamldoc.Duration{Duration: time.Second}, High: yamldoc.Duration{Duration: 100 * 365 * day}, Zero: true,
		}},
		"stream.duplicateWindow": {Limit: check.Limit{Low: yamldoc.Duration{
			Duration: 100 * time.Millisecond,
		}, High: yamldoc.Duration{Duration: day}}},
	})
}

// Validate implements driver.Config.
func (c *Config) Validate(path *field.Path, f *driver.Facts) field.ErrorList {
	list := validateServers(c.URL, path)
	if c.Subject == "" {
		list = append(list, field.Required(path.Child("subject"), "must not be empty"))
	} else if _, err := subject.New(c.Subject, f.ClusterName()); err != nil {
		list = append(list, check.Template(path.Child("subject"), subject.Default, err))
	}
	s := c.Stream
	at := path.Child("stream")
	known := keys()
	list = append(list,
		check.Matches(at.Child("name"), s.Name, streamName,
			`must be 1 to 255 printable characters without spaces and none of . * > " / \`)...)
	list = append(list,
		check.InLimit(at.Child("replicas"), yamldoc.Count(s.Replicas), known["stream.replicas"].Limit)...)
	list = append(list, check.InLimit(at.Child("maxAge"), s.MaxAge, known["stream.maxAge"].Limit)...)
	list = append(list,
		check.If(s.MaxBytes < 0, field.Invalid(at.Child("maxBytes"), s.MaxBytes, "must not be negative"))...)
	list = append(list, check.InEnum(at.Child("discard"), s.Discard)...)
	list = append(list, check.If(s.Discard == DiscardOld && s.MaxBytes > 0,
		field.Invalid(at.Child("discard"), s.Discard,
			"must be new if maxBytes limits the stream: otherwise records would be dropped silently"))...)
	list = append(list,
		check.InLimit(at.Child("duplicateWindow"), s.DuplicateWindow, known["stream.duplicateWindow"].Limit)...)
	list = append(list, check.Matches(path.Child("inboxPrefix"), c.InboxPrefix, inboxPrefix,
		"must be a subject such as _INBOX_kubecdc: printable characters without spaces, * and >, and no dot at the end")...)
	list = append(list,
		check.Matches(path.Child("domain"), c.Domain, jetStreamDomain,
			"must be printable characters without spaces, dots, * and >")...)
	if wrong := c.Auth.validate(path.Child("auth")); len(wrong) > 0 {
		list = append(list, wrong...)
	} else {
		list = append(list, c.validateSecrecy(path)...)
	}
	list = append(list, c.TLS.Validate(path.Child("tls"))...)
	list = append(list, c.Reader.validate(path.Child("reader"), f)...)
	return append(list, c.validateTarget(path, f)...)
}

// validateTarget rejects a target from which the relay would read its own output.
func (c *Config) validateTarget(path *field.Path, f *driver.Facts) field.ErrorList {
	b, ok := f.Source.(*Config)
	if !ok || !driver.ShareServer(strings.Split(b.URL, ","), strings.Split(c.URL, ",")) {
		return nil
	}
	switch {
	case b.Stream.Name == c.Stream.Name:
		return field.ErrorList{
			field.Forbidden(path,
				"is the bus itself: the relay would read its own output; use another server, or a stream of another account"),
		}
	case reflect.DeepEqual(b.Auth, c.Auth) && reflect.DeepEqual(b.TLS, c.TLS):
		return field.ErrorList{
			field.Forbidden(path,
				"is on the server and in the account of the bus, whose stream has these subjects; use another server, or the auth of another account"),
		}
	}
	return nil
}

var (
	streamName      = regexp.MustCompile(`^[!#-)+,\-0-=?-\[\]-~]{1,255}$`)
	inboxPrefix     = regexp.MustCompile(`^[!-)+-\-/-=?-~]+(\.[!-)+-\-/-=?-~]+)*$`)
	jetStreamDomain = regexp.MustCompile(`^[!-)+-\-/-=?-~]*$`)
)

func (a *Auth) validate(path *field.Path) field.ErrorList {
	list := check.OnlyOne(path, "way", false, check.Choice{Name: "credsFile", Is: a.CredsFile != ""},
		check.Choice{Name: "user", Is: a.User != "" || a.PasswordFile != ""},
		check.Choice{Name: "tokenFile", Is: a.TokenFile != ""}, check.Choice{
			Name: "nkeySeedFile",
			Is:   a.NKeySeedFile != "",
		})
	list = append(list, check.Together(path, "user", a.User, "passwordFile", a.PasswordFile)...)
	for _, f := range []struct{ name, path string }{
		{"credsFile", a.CredsFile},
		{"passwordFile", a.PasswordFile},
		{"tokenFile", a.TokenFile},
		{"nkeySeedFile", a.NKeySeedFile},
	} {
		list = append(list, check.SecretFile(path.Child(f.name), f.path)...)
	}
	return list
}

// validateServers never repeats the URL: its user part may be a password. path belongs to the
// mapping with the url.
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

// wrongServer describes the error in a server's URL without repeating any part of the URL.
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
		return "is invalid; write host:port after ://"
	case u.User != nil:
		return fmt.Sprintf("has a user or a password in it; remove them: secrets come only from files, see %s",
			path.Child("auth"))
	case u.RawQuery != "" || u.Fragment != "":
		return "has a ? or a # in it; end it with the port"
	case u.Hostname() == "":
		return "has no host"
	}
	return ""
}

func serverSchemes() []string { return []string{"nats", "tls", "ws", "wss"} }

// validateSecrecy checks the protection of secrets that are sent to a NATS server.
func (c *Config) validateSecrecy(path *field.Path) field.ErrorList {
	remote := slices.ContainsFunc(strings.Split(c.URL, ","), func(server string) bool {
		u, err := url.Parse(strings.TrimSpace(server)) // an error is reported elsewhere
		return err == nil && !check.IsLoopbackHost(u.Hostname())
	})
	key, _ := c.Auth.File()
	if key != "passwordFile" && key != "tokenFile" || !remote || !c.Auth.InPlaintext(c.URL, c.TLS) {
		return nil
	}
	at := path.Child("auth")
	return field.ErrorList{
		check.Exposed(at.Child(key), "require TLS with tls: {} in "+path.String()+", or with tls:// or wss:// in url",
			at.Child("insecure").String()+": true"),
	}
}

// deadSubject matches tokens separated by dots, without spaces and wildcards.
var deadSubject = regexp.MustCompile(`^([^\x00-\x20\x7f.*>{}]|\{cluster\})+(\.([^\x00-\x20\x7f.*>{}]|\{cluster\})+)*$`)

func validateDeadSubject(path *field.Path, value string, _ driver.Config, f *driver.Facts) field.ErrorList {
	if !deadSubject.MatchString(value) {
		return field.ErrorList{field.Invalid(path, value, "must be a subject such as "+DefaultDeadSubject+
			": words with dots between them, no spaces and none of * >; {cluster} is the only placeholder")}
	}
	if _, err := DeadLetterSubject(value, f.ClusterName()); err != nil {
		return field.ErrorList{check.Template(path, DefaultDeadSubject, err)}
	}
	return nil
}

// DeadLetterSubject expands a template, in which {cluster} is the only placeholder.
func DeadLetterSubject(template, cluster string) (string, error) {
	if cluster == "" {
		return "", errors.New("dead-letter subject: the cluster has no name")
	}
	parts, err := subject.Compile(template, cluster)
	switch {
	case err != nil:
		return "", fmt.Errorf("dead-letter subject %q: %w", template, err)
	case len(parts) != 1 || parts[0].Field != subject.FieldLiteral:
		return "", fmt.Errorf("dead-letter subject %q: {cluster} is the only placeholder in it", template)
	}
	return parts[0].Text, nil
}

// SetAccess implements driver.Readable.
func (c *Config) SetAccess(a *driver.Access) error {
	if inbox := a.Flags[flagInbox]; inbox != "" {
		if strings.ContainsAny(inbox, "*>") || strings.HasSuffix(inbox, ".") { // as nats.CustomInboxPrefix
			return fmt.Errorf(
				"--%s %q: want a subject such as _INBOX_reader, without * and >, and without a dot at the end",
				flagInbox, inbox)
		}
		c.InboxPrefix = inbox
	}
	c.Stream.Name, c.Domain = cmp.Or(a.Flags[flagStream], c.Stream.Name), cmp.Or(a.Flags[flagDomain], c.Domain)
	c.CredsFlag = a.Flags[flagCreds]
	if c.CredsFlag != "" {
		c.Auth, c.Token = Auth{CredsFile: c.CredsFlag}, nil
	}
	if a.Token != nil && c.Auth == (Auth{}) {
		c.Token = a.Token
	}
	c.TLS = c.TLS.WithCA(a.CAFile)
	return nil
}

// File returns the key and the name of the file with the secret, or two empty strings without a
// file.
func (a *Auth) File() (key, name string) {
	switch {
	case a.CredsFile != "":
		return "credsFile", a.CredsFile
	case a.PasswordFile != "":
		return "passwordFile", a.PasswordFile
	case a.TokenFile != "":
		return "tokenFile", a.TokenFile
	case a.NKeySeedFile != "":
		return "nkeySeedFile", a.NKeySeedFile
	}
	return "", ""
}

// InPlaintext reports whether a secret may reach the servers without TLS and without permission.
func (c *Config) InPlaintext() bool { return c.Token != nil || c.Auth.InPlaintext(c.URL, c.TLS) }

// InPlaintext reports whether a secret may reach the servers without TLS and without permission. If
// one of the URLs is tls:// or wss://, nats.go requires TLS for all of them.
func (a *Auth) InPlaintext(urls string, t *publish.TLS) bool {
	secret := a.PasswordFile != "" || a.TokenFile != ""
	for s := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			continue // nats.go rejects it
		}
		if u.Scheme == "tls" || u.Scheme == "wss" {
			return false
		}
		secret = secret || u.User != nil
	}
	return secret && t == nil && !a.Insecure
}
