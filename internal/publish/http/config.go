package http

import (
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	defaultTimeout = 30 * time.Second
	maxSingles     = 256 // requests of one event at once
	maxBatches     = 4   // requests with batches at once: events that arrive meanwhile fill the next ones
)

// Config says where a Bus publishes to.
type Config struct {
	URL string // http or https. Its path and query may be a secret: they are never logged

	// Batch is how many events a request may hold; above 1, structured events go in batched content mode, up to 1 MiB a
	// request. 0: 1.
	Batch int
	// Timeout is how long a request may take, from dialling to the status. 0: 30 s.
	Timeout     time.Duration
	HeadersFile string       // lines "Name: value", sent with each request; read again when it has changed. "": none
	TokenFile   string       // a bearer token; read again when it has changed. "": none
	Insecure    bool         // permits to send both unencrypted to another machine
	TLS         *publish.TLS // nil with https: the system's certificates

	// InFlight bounds the requests that are on their way. 0: 256; with Batch above 1: 4, because events that wait for
	// one of them fill the next.
	InFlight int

	// Fence is asked before each request, and before each write to a socket. nil: everything passes.
	Fence publish.Fence
	// DeadLetterURL is where dead letters go; "": nowhere. Credentials (the two files above, the client's
	// certificate) go only to the origin of URL: same scheme, host and port.
	DeadLetterURL string
}

func (cfg *Config) client() ClientConfig {
	return ClientConfig{
		URL: cfg.URL, Timeout: cfg.Timeout, HeadersFile: cfg.HeadersFile, TokenFile: cfg.TokenFile, Insecure: cfg.Insecure, TLS: cfg.TLS, Fence: cfg.Fence,
	}
}

// forDeadLetters returns the configuration of the dead letters' receiver. origin is that of cfg.URL.
func (cfg *Config) forDeadLetters(origin string) (Config, error) {
	u, err := parseEndpoint(cfg.DeadLetterURL)
	if err != nil {
		return Config{}, fmt.Errorf("url: %w", err)
	}
	other := Config{URL: cfg.DeadLetterURL, Timeout: cfg.Timeout, Fence: cfg.Fence}
	switch {
	case originOf(u) == origin:
		other.HeadersFile, other.TokenFile, other.Insecure, other.TLS = cfg.HeadersFile, cfg.TokenFile, cfg.Insecure, cfg.TLS
	case u.Scheme == "https" && cfg.TLS != nil:
		other.TLS = &publish.TLS{CAFile: cfg.TLS.CAFile}
	}
	return other, nil
}
