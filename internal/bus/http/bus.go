package http

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Bus implements publish.Bus. See the package documentation.
type Bus struct {
	cfg         Config
	events      *endpoint
	deadLetters *endpoint // nil without dead letters
	log         *slog.Logger
	metrics     *publish.Metrics
}

// New returns a bus for valid settings. It reads the files they name; Run opens the connections.
func New(cfg Config, log *slog.Logger, m *publish.Metrics) (*Bus, error) {
	m = cmp.Or(m, publish.NewMetrics(nil))
	b := &Bus{cfg: cfg, log: log, metrics: m}
	var err error
	b.events, err = newEndpoint(cfg, log, m)
	if err != nil || cfg.DeadLetterURL == "" {
		return b, err
	}
	other, err := cfg.forDeadLetters(b.events.origin)
	if err == nil {
		b.deadLetters, err = newEndpoint(other, log, m)
	}
	if err != nil {
		return nil, fmt.Errorf("dead letter %w", err)
	}
	return b, nil
}

// Publish implements publish.Bus.
func (b *Bus) Publish(e *publish.Event) {
	switch {
	case !e.DeadLetter:
		b.events.publish(e)
	case b.deadLetters != nil:
		b.deadLetters.publish(e)
	default:
		e.Done(fmt.Errorf("publish %s: %w: no URL for dead letters is configured", e.ID, publish.ErrRefused))
	}
}

// Ready returns an error while each of the last five requests has failed for a temporary reason,
// and after Run.
//
// Before the first event it returns nil: no free request would prove that a receiver accepts
// events, and the first event may come hours later. A refused event counts as success, because the
// receiver responded.
func (b *Bus) Ready() error { return b.events.ready() }

// Run implements publish.Bus. It returns nil.
func (b *Bus) Run(ctx context.Context) error {
	if b.events.url.Scheme == "http" && (b.cfg.HeadersFile != "" || b.cfg.TokenFile != "") {
		b.log.Warn("credentials are sent unencrypted", "receiver", b.events.origin, "advice",
			"use https in bus.http.url")
	}
	b.events.open(b.metrics.Connected)
	if b.deadLetters != nil {
		b.deadLetters.open(nil)
	}
	<-ctx.Done()
	b.events.close()
	if b.deadLetters != nil {
		b.deadLetters.close()
	}
	b.metrics.Connected.Set(0)
	return nil
}

const (
	defaultTimeout = 30 * time.Second
	maxSingles     = 256 // concurrent requests with one event
	maxBatches     = 4   // concurrent requests with batches: events that arrive meanwhile fill the next ones
)

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
		Name: "http", Schemes: []string{"http", "https"}, URL: "http(s)://host/path",
		Default: driver.Defaults[Config],
		Keys:    keys(),
		DeadLetter: &driver.DeadLetter{
			Key: "url", Value: check.URL(),
			Default:  func(driver.Config, string) string { return "" },
			Validate: validateDeadURL,
		},
	}
}

// SetDefaults implements yamldoc.Defaulter.
func (cfg *Config) SetDefaults() {
	*cfg = Config{Batch: 1, Timeout: yamldoc.Duration{Duration: defaultTimeout}}
}

// SetURL implements driver.Config.
func (cfg *Config) SetURL(url string) error {
	cfg.URL = url
	return nil
}

// Open implements driver.Config.
func (cfg *Config) Open(e *driver.Env) (publish.Bus, error) {
	o := *cfg
	o.DeadLetterURL, o.Fence = e.DeadLetter, e.Fence
	return New(o, e.Log, e.Metrics)
}

// Summary implements driver.Config.
func (cfg *Config) Summary() driver.Summary {
	receiver := receiverOf(cfg.URL)
	s := driver.Summary{Kind: "http", URL: WithoutQuery(cfg.URL), Log: "HTTP " + receiver, Servers: []string{
		receiver,
	}, Identity: "HTTP, " + receiver}
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

func (cfg *Config) client() ClientConfig {
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

// forDeadLetters returns the configuration of the receiver of dead letters. origin belongs to
// cfg.URL.
func (cfg *Config) forDeadLetters(origin string) (Config, error) {
	u, err := url.Parse(cfg.DeadLetterURL)
	if err != nil {
		return Config{}, fmt.Errorf("url: %w", publish.WithoutURL(err))
	}
	other := Config{URL: cfg.DeadLetterURL, Timeout: cfg.Timeout, Fence: cfg.Fence}
	switch {
	case originOf(u) == origin:
		other.HeadersFile = cfg.HeadersFile
		other.TokenFile = cfg.TokenFile
		other.Insecure = cfg.Insecure
		other.TLS = cfg.TLS
	case u.Scheme == "https" && cfg.TLS != nil:
		other.TLS = &publish.TLS{CAFile: cfg.TLS.CAFile}
	}
	return other, nil
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
	client := cfg.client()
	list := client.validateURL(path)
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

// Validate returns the errors of the settings at path.
func (cfg *ClientConfig) Validate(path *field.Path) field.ErrorList {
	return append(cfg.validateURL(path), cfg.validateRest(path)...)
}

func (cfg *ClientConfig) validateURL(path *field.Path) field.ErrorList {
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
