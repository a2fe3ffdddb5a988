package http

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// ClientConfig says where a Receiver or a ClaimStore sends requests.
type ClientConfig struct {
	URL         string           `yaml:"url"`                   // http or https
	Timeout     yamldoc.Duration `yaml:"timeout"`               // of a request, from dialling to the status; 0: 30 s
	HeadersFile string           `yaml:"headersFile,omitempty"` // lines "Name: value", sent with each request; read again when it has changed. "": none
	TokenFile   string           `yaml:"tokenFile,omitempty"`   // a bearer token; read again when it has changed. "": none
	Insecure    bool             `yaml:"insecure,omitempty"`    // permits to send both unencrypted to another machine
	TLS         *publish.TLS     `yaml:"tls,omitempty"`         // nil with https: the system's certificates
	Fence       publish.Fence    `yaml:"-"`                     // asked before each request of a ClaimStore, and before each write to a socket. nil: everything passes
}

// SetDefaults implements yamldoc.Defaulter.
func (cfg *ClientConfig) SetDefaults() {
	*cfg = ClientConfig{Timeout: yamldoc.Duration{Duration: defaultTimeout}}
}

// client has what requests to one URL need.
type client struct {
	url         *url.URL
	origin      string // for errors and the log
	timeout     time.Duration
	credentials *credentials
	links       *links
	fence       *publish.Fencing
}

// newClient checks cfg, and reads the files that it names. It keeps that many connections, which gather up to buffer bytes before they write; 0: 4 KiB.
func newClient(cfg ClientConfig, connections, buffer int) (*client, error) {
	u, err := parseEndpoint(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if u.Scheme == "http" && cfg.TLS != nil {
		return nil, errors.New("url: is http, but tls is configured: write https, or leave tls out")
	}
	if cfg.Timeout.Duration <= 0 {
		cfg.Timeout.Duration = defaultTimeout
	}
	c := &client{
		url: u, origin: originOf(u), timeout: cfg.Timeout.Duration, fence: publish.NewFencing(cfg.Fence),
		credentials: &credentials{headersFile: cfg.HeadersFile, tokenFile: cfg.TokenFile, endpoint: secretsOf(u)},
		links:       &links{tls: cfg.TLS, idle: connections, buffer: buffer},
	}
	c.links.fence, c.links.plaintext = c.fence, c.credentials.inPlaintext(u, cfg.Insecure)
	if _, _, err := c.credentials.read(); err != nil {
		return nil, err
	}
	if _, err := c.links.pick(false); err != nil {
		return nil, err
	}
	return c, nil
}

// parseEndpoint checks a URL. Errors do not quote it: it may hold a secret.
func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, publish.WithoutURL(err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("no host")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password: put them into headersFile (Authorization: Basic …) or tokenFile")
	case u.Fragment != "":
		return nil, errors.New("must not hold a fragment (#…): it is never sent")
	}
	return u, nil
}

// originOf returns scheme, host and port, the port always.
func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return u.Scheme + "://" + host + ":" + port
}
