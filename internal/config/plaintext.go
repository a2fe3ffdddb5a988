package config

import (
	"net"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A password, a token or a client secret is sent only over TLS or within this machine, unless `insecure: true` stands beside it. What
// proves a secret without sending it is no matter of these rules: JWT credentials and NKeys of NATS, SCRAM of Kafka.

// isLoopbackHost reports whether a host is this machine, as far as its name tells. Package publish looks at the address that is
// connected to.
func isLoopbackHost(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// exposed is the error of a secret at path that would go out unencrypted.
func exposed(path *field.Path, remedy, insecure string) *field.Error {
	return field.Forbidden(path, "would be sent unencrypted, for everyone on the network to read: "+remedy+"; or send it all the same with "+insecure)
}

// validateSecrecy looks at the secrets that are sent to a NATS server.
func (n *NATS) validateSecrecy(path *field.Path) field.ErrorList {
	a, key := &n.Auth, ""
	switch {
	case a.PasswordFile != "":
		key = "passwordFile"
	case a.TokenFile != "":
		key = "tokenFile"
	}
	if key == "" || a.Insecure || n.TLS != nil {
		return nil
	}
	exposes := false
	for server := range strings.SplitSeq(n.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		switch {
		case err != nil: // reported elsewhere
		case u.Scheme == "tls" || u.Scheme == "wss": // the client then insists on TLS with all servers
			return nil
		default:
			exposes = exposes || !isLoopbackHost(u.Hostname())
		}
	}
	if !exposes {
		return nil
	}
	at := path.Child("auth")
	return field.ErrorList{exposed(at.Child(key), "insist on TLS with tls: {} in "+path.String()+", or with tls:// or wss:// in url", at.Child("insecure").String()+": true")}
}

// validateSecrecy looks at the secrets that are sent to the brokers, or to where tokens come from. k has SASL.
func (k *Kafka) validateSecrecy(path *field.Path) field.ErrorList {
	s, at := k.SASL, path.Child("sasl")
	var list field.ErrorList
	if o := s.OAuth; o != nil && !o.Insecure && plaintext(o.TokenURL) {
		list = append(list, exposed(at.Child("oauth", "clientSecretFile"), "write https:// in "+at.Child("oauth", "tokenURL").String(), at.Child("oauth", "insecure").String()+": true"))
	}
	if s.Insecure || k.TLS != nil || s.Mechanism != SASLPlain && s.Mechanism != SASLOAuthBearer {
		return list
	}
	for _, broker := range k.Brokers {
		if host, _, err := net.SplitHostPort(broker); err == nil && !isLoopbackHost(host) {
			what := "passwordFile"
			if s.Mechanism == SASLOAuthBearer {
				what = "mechanism"
			}
			return append(list, exposed(at.Child(what), "insist on TLS with tls: {} in "+path.String()+", at the brokers' port for it, or take a SCRAM mechanism",
				at.Child("insecure").String()+": true"))
		}
	}
	return list
}

// validateHTTPSecrecy looks at the secrets that are sent to an HTTP server.
func validateHTTPSecrecy(path *field.Path, endpointKey, endpoint, headersFile, tokenFile string, insecure bool) field.ErrorList {
	if insecure || !plaintext(endpoint) {
		return nil
	}
	var list field.ErrorList
	for _, f := range []struct{ key, path string }{{"headersFile", headersFile}, {"tokenFile", tokenFile}} {
		if f.path != "" {
			list = append(list, exposed(path.Child(f.key), "write https:// in "+path.Child(endpointKey).String(), path.Child("insecure").String()+": true"))
		}
	}
	return list
}

// plaintext reports whether what is sent to a URL leaves this machine unencrypted.
func plaintext(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "http" && !isLoopbackHost(u.Hostname())
}
