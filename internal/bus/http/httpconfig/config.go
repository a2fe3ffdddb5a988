package httpconfig

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// DefaultTimeout limits a request, from dialling to the status.
const DefaultTimeout = 30 * time.Second

// Config configures the destination of a Bus. Fields without a key are not part of the
// configuration file.
type Config struct {
	URL string `yaml:"url"` // http or https. Path and query may be secret: they are never logged

	// Batch is the maximum number of events in a request. Above 1, structured events use batched
	// content mode, up to 1 MiB in a request. 0: 1.
	Batch   int              `yaml:"batch"`
	Timeout yamldoc.Duration `yaml:"timeout"` // of a request, from dialling to the status; 0: 30 s
	// lines "Name: value" for each request; read again after a change. "" for none
	HeadersFile string `yaml:"headersFile,omitempty"`
	// a bearer token; read again after a change. "" for none
	TokenFile string       `yaml:"tokenFile,omitempty"`
	Insecure  bool         `yaml:"insecure,omitempty"` // permits sending both unencrypted to another machine
	TLS       *publish.TLS `yaml:"tls,omitempty"`      // nil with https: the system's certificates

	// InFlight limits the concurrent requests. 0: 256, or 4 if Batch is above 1, because events
	// that wait for one of them fill the next.
	InFlight int `yaml:"-"`
	// Fence is checked before each request, and before each write to a socket. nil passes
	// everything.
	Fence publish.Fence `yaml:"-"`
	// DeadLetterURL is the receiver of dead letters; "" without one. Credentials (the two files
	// above, the client's certificate) are sent only to the origin of URL: same scheme, host and
	// port.
	DeadLetterURL string `yaml:"-"`
}

// Driver returns the driver of the bus "http".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name:    "http",
		Schemes: []string{"http", "https"},
		URL:     "http(s)://host/path",
		Default: driver.Defaults[Config],
		Keys:    keys(),
		DeadLetter: &driver.DeadLetter{
			Key:      "url",
			Value:    check.URL(),
			Default:  func(driver.Config, string) string { return "" },
			Validate: validateDeadURL,
		},
	}
}

// SetDefaults implements yamldoc.Defaulter.
func (cfg *Config) SetDefaults() {
	*cfg = Config{Batch: 1, Timeout: yamldoc.Duration{Duration: DefaultTimeout}}
}

// SetURL implements driver.Config.
func (cfg *Config) SetURL(url string) error {
	cfg.URL = url
	return nil
}

// Summary implements driver.Config.
func (cfg *Config) Summary() driver.Summary {
	receiver := receiverOf(cfg.URL)
	s := driver.Summary{
		Kind:     "http",
		URL:      WithoutQuery(cfg.URL),
		Log:      "HTTP " + receiver,
		Servers:  []string{receiver},
		Identity: "HTTP, " + receiver,
	}
	s.Text = s.URL + ", an event in each request"
	if cfg.Batch > 1 {
		s.Text = fmt.Sprintf("%s, up to %d events in each request", s.URL, cfg.Batch)
	}
	if cfg.TLS != nil && (cfg.TLS.CAFile != "" || cfg.TLS.CertFile != "") { // the URL already shows TLS
		s.Text += driver.With(cfg.TLS.Summary())
	}
	return s
}

// receiverOf returns the URL of a receiver for the log, without parts that may be secret. A hash
// replaces its path.
func receiverOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "" // impossible: the URL was validated
	}
	origin := u.Scheme + "://" + u.Host
	if u.Path == "" || u.Path == "/" {
		return origin
	}
	sum := sha256.Sum256([]byte(u.EscapedPath()))
	return fmt.Sprintf("%s/… (%x)", origin, sum[:4])
}

// WithoutQuery returns a URL without user, query and fragment.
func WithoutQuery(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "" // impossible: the URL was validated
	}
	u.User = nil
	u.RawQuery = ""
	u.Fragment = ""
	return u.String()
}

// Client returns the settings of requests with events.
func (cfg *Config) Client() ClientConfig {
	return ClientConfig{
		URL:         cfg.URL,
		Timeout:     cfg.Timeout,
		HeadersFile: cfg.HeadersFile,
		TokenFile:   cfg.TokenFile,
		Insecure:    cfg.Insecure,
		TLS:         cfg.TLS,
		Fence:       cfg.Fence,
	}
}

// keys returns the constraints of the keys.
func keys() map[string]check.Key {
	url := check.URL()
	url.Required = true
	return map[string]check.Key{
		"url":     url,
		"batch":   {Limit: check.Limit{Low: yamldoc.Count(1), High: yamldoc.Count(1000)}},
		"timeout": {Limit: TimeoutLimit()},
	}
}

// TimeoutLimit returns the permitted range of a request's timeout.
func TimeoutLimit() check.Limit {
	return check.Limit{Low: yamldoc.Duration{Duration: 100 * time.Millisecond}, High: yamldoc.Duration{
		Duration: 10 * time.Minute,
	}}
}

// Validate implements driver.Config.
func (cfg *Config) Validate(path *field.Path, f *driver.Facts) field.ErrorList {
	client := cfg.Client()
	list := client.ValidateURL(path)
	list = append(list, check.InLimit(path.Child("batch"), yamldoc.Count(cfg.Batch), keys()["batch"].Limit)...)
	if cfg.Batch > 1 && f.Binary && !f.Target { // a relay sends structured events only
		list = append(list,
			field.Invalid(path.Child("batch"), cfg.Batch,
				"must be 1 if event.mode is binary: a batch consists of structured events"))
	}
	list = append(list, client.validateRest(path)...)
	if u, err := url.Parse(cfg.URL); f.Target && err == nil && u.Hostname() == "hooks.slack.com" {
		list = append(list,
			field.Forbidden(path.Child("url"),
				"is a webhook of Slack, which accepts no CloudEvents and whose URL is a secret: "+
					"write slack: {urlFile: /etc/kubecdc/webhook}, with the URL in that file"))
	}
	return list
}

// ClientConfig configures the requests to a receiver, or to a store of large events.
type ClientConfig struct {
	URL     string           `yaml:"url"`     // http or https
	Timeout yamldoc.Duration `yaml:"timeout"` // of a request, from dialling to the status; 0: 30 s
	// lines "Name: value" for each request; read again after a change. "" for none
	HeadersFile string `yaml:"headersFile,omitempty"`
	// a bearer token; read again after a change. "" for none
	TokenFile string       `yaml:"tokenFile,omitempty"`
	Insecure  bool         `yaml:"insecure,omitempty"` // permits sending both unencrypted to another machine
	TLS       *publish.TLS `yaml:"tls,omitempty"`      // nil with https: the system's certificates
	// checked before each request of a store of large events and each write to a socket; nil passes
	// everything
	Fence publish.Fence `yaml:"-"`
}

// SetDefaults implements yamldoc.Defaulter.
func (cfg *ClientConfig) SetDefaults() {
	*cfg = ClientConfig{Timeout: yamldoc.Duration{Duration: DefaultTimeout}}
}

// Validate returns the errors of the settings at path.
func (cfg *ClientConfig) Validate(path *field.Path) field.ErrorList {
	return append(cfg.ValidateURL(path), cfg.validateRest(path)...)
}

// ValidateURL returns the errors of the URL. They do not repeat it: it may be a secret.
func (cfg *ClientConfig) ValidateURL(path *field.Path) field.ErrorList {
	return check.Endpoint(cfg.URL, path.Child("url"))
}

func (cfg *ClientConfig) validateRest(path *field.Path) field.ErrorList {
	list := check.InLimit(path.Child("timeout"), cfg.Timeout, TimeoutLimit())
	list = append(list, ValidateSecrecy(path, "url", cfg.URL, cfg.HeadersFile, cfg.TokenFile, cfg.Insecure)...)
	return append(list, ValidateFiles(path, "url", cfg.URL, cfg.HeadersFile, cfg.TokenFile, cfg.TLS)...)
}

// ValidateFiles checks the files of credentials and certificates for the HTTP server whose URL has
// the key urlKey.
func ValidateFiles(
	path *field.Path, urlKey, endpoint, headersFile, tokenFile string, tls *publish.TLS,
) field.ErrorList {
	list := check.SecretFile(path.Child("headersFile"), headersFile)
	list = append(list, check.SecretFile(path.Child("tokenFile"), tokenFile)...)
	list = append(list, check.If(tls != nil && strings.HasPrefix(endpoint, "http://"),
		field.Forbidden(path.Child("tls"),
			"has no effect if the "+urlKey+" begins with http://; write https:// there, or remove it"))...)
	return append(list, tls.Validate(path.Child("tls"))...)
}

// ValidateSecrecy checks the protection of secrets that are sent to an HTTP server.
func ValidateSecrecy(
	path *field.Path, endpointKey, endpoint, headersFile, tokenFile string, insecure bool,
) field.ErrorList {
	if insecure || !check.Plaintext(endpoint) {
		return nil
	}
	var list field.ErrorList
	for _, f := range []struct{ key, path string }{{"headersFile", headersFile}, {"tokenFile", tokenFile}} {
		if f.path != "" {
			list = append(list,
				check.Exposed(path.Child(f.key), "write https:// in "+path.Child(endpointKey).String(),
					path.Child("insecure").String()+": true"))
		}
	}
	return list
}

func validateDeadURL(path *field.Path, value string, bus driver.Config, _ *driver.Facts) field.ErrorList {
	list := check.Endpoint(value, path)
	if c, ok := bus.(*Config); ok && value == c.URL {
		list = append(list,
			field.Forbidden(path, "must differ from the URL of the events (bus.http.url), which rejected them"))
	}
	return list
}
