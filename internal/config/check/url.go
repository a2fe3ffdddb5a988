package check

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Endpoint checks the URL of an HTTP server. It never repeats the URL: its user part may be a password.
func Endpoint(endpoint string, path *field.Path) field.ErrorList {
	if endpoint == "" {
		return field.ErrorList{field.Required(path, "is missing: a URL such as https://host/path")}
	}
	if what := wrongEndpoint(endpoint); what != "" {
		return field.ErrorList{field.Forbidden(path, "must be a URL such as https://host/path: "+what)}
	}
	return nil
}

// wrongEndpoint returns why the URL of an HTTP server is not valid, without any part of the URL.
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
		return "has a user or a password in it; remove them: secrets come only from files, which other keys name"
	case u.Fragment != "":
		return "has a # in it"
	case u.Hostname() == "":
		return "has no host"
	case !IsPort(u.Port()):
		return "has an invalid port: must be between 1 and 65535"
	}
	return ""
}

// IsPort reports whether a text can follow the colon of a URL: a port, or nothing.
func IsPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// A password, a token or a client secret is sent only over TLS or within this machine, unless `insecure: true` permits it.
// These rules do not apply to credentials that prove a secret without sending it: JWT credentials and NKeys of NATS, SCRAM of
// Kafka.

// IsLoopbackHost reports whether a host is this machine, by its name only. Package publish checks the address of the
// connection.
func IsLoopbackHost(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Plaintext reports whether what is sent to a URL leaves this machine unencrypted.
func Plaintext(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "http" && !IsLoopbackHost(u.Hostname())
}

// Exposed returns the error of a secret at path that would be sent unencrypted.
func Exposed(path *field.Path, remedy, insecure string) *field.Error {
	return field.Forbidden(path, "would be sent unencrypted, and readable on the network: "+remedy+"; to send it anyway, set "+insecure)
}
