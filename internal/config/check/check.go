package check

import (
	"errors"
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

// AbsolutePath matches paths that begin with the root.
var AbsolutePath = regexp.MustCompile(`^(/|[A-Za-z]:[/\\])`)

// SecretFile finds values that are not the path of a file. It does not repeat the value, which may
// be the secret itself.
func SecretFile(path *field.Path, file string) field.ErrorList {
	name := fileNames()[strings.ToLower(path.String()[strings.LastIndexByte(path.String(), '.')+1:])]
	return If(file != "" && !AbsolutePath.MatchString(file),
		field.Forbidden(path, "must be the absolute path of a file that holds it, such as /etc/kubecdc/"+name+
			"; the secret itself does not belong here"))
}

// fileNames returns examples, by key in lower case.
func fileNames() map[string]string {
	return map[string]string{
		"credsfile": "nats.creds", "nkeyseedfile": "nats.nk", "urlfile": "webhook", "headersfile": "headers",
		"clientsecretfile": "client-secret",
		"keyfile":          "redaction.key",
		"passwordfile":     "password",
		"tokenfile":        "token",
	}
}

// PlainFile finds values that are not the path of a file.
func PlainFile(path *field.Path, file, example string) field.ErrorList {
	return If(file != "" && !AbsolutePath.MatchString(file),
		field.Invalid(path, file, "must be an absolute path, such as "+example))
}

// Endpoint checks the URL of an HTTP server. It never repeats the URL: its user part may be a
// password.
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

// A password, a token or a client secret is sent only over TLS or within this machine, unless
// `insecure: true` permits it. These rules do not apply to credentials that prove a secret without
// sending it: JWT credentials and NKeys of NATS, SCRAM of Kafka.

// IsLoopbackHost reports whether a host is this machine, by its name only. Package publish checks
// the address of the connection.
func IsLoopbackHost(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Plaintext reports whether what is sent to a URL leaves this machine unencrypted.
func Plaintext(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "http" && !IsLoopbackHost(u.Hostname())
}

// Exposed returns the error of a secret at path that would be sent unencrypted.
func Exposed(path *field.Path, remedy, insecure string) *field.Error {
	return field.Forbidden(path,
		"would be sent unencrypted, and readable on the network: "+remedy+"; to send it anyway, set "+insecure)
}

// Limit is the range of a number, both ends allowed.
type Limit struct {
	Low, High yamldoc.Quantity
	Zero      bool // 0 is also allowed, as "none"
}

// String returns the range in words: "between 1 and 5".
func (l Limit) String() string {
	s := fmt.Sprintf("between %v and %v", l.Low, l.High)
	if l.Zero {
		return "0 or " + s
	}
	return s
}

// If returns the error of a value that is wrong.
func If(wrong bool, err *field.Error) field.ErrorList {
	if wrong {
		return field.ErrorList{err}
	}
	return nil
}

// Matches compares a text with a pattern.
func Matches(path *field.Path, text string, pattern *regexp.Regexp, message string) field.ErrorList {
	return If(!pattern.MatchString(text), field.Invalid(path, text, message))
}

// InLimit compares got with a limit.
func InLimit(path *field.Path, got yamldoc.Quantity, l Limit) field.ErrorList {
	n := got.Int64()
	return If((n != 0 || !l.Zero) && (n < l.Low.Int64() || n > l.High.Int64()),
		field.Invalid(path, got, "must be "+l.String()))
}

// Names returns the values of an Enum.
func Names[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// InEnum compares got with the values of its type.
func InEnum[T interface {
	~string
	yamldoc.Enum
}](path *field.Path, got T,
) field.ErrorList {
	return If(!slices.Contains(got.Values(), string(got)),
		field.Invalid(path, string(got), "must be "+yamldoc.OneOf(got)))
}

// Unique finds duplicate items.
func Unique[T comparable](items []T, path *field.Path) field.ErrorList {
	var list field.ErrorList
	for i, item := range items {
		if slices.Contains(items[:i], item) {
			list = append(list, field.Invalid(path.Index(i), item, "must not be given twice"))
		}
	}
	return list
}

// Choice is a member of a mapping that must have one.
type Choice struct {
	Name string
	Is   bool
}

// OnlyOne returns an error if several choices are present, or if none is and one is needed.
func OnlyOne(path *field.Path, what string, needed bool, choices ...Choice) field.ErrorList {
	var all, got []string
	for _, c := range choices {
		all = append(all, c.Name)
		if c.Is {
			got = append(got, c.Name)
		}
	}
	switch {
	case len(got) == 0 && needed:
		return field.ErrorList{
			field.Required(path, fmt.Sprintf("must name one %s, %s, got none", what, Listed(all, "or"))),
		}
	case len(got) > 1:
		return field.ErrorList{
			field.Forbidden(path, fmt.Sprintf("must name one %s only, got %s", what, Listed(got, "and"))),
		}
	}
	return nil
}

// Listed returns "a, b and c".
func Listed(words []string, conjunction string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Together returns an error if only one of two keys is present.
func Together(path *field.Path, a, aValue, b, bValue string) field.ErrorList {
	if aValue == "" {
		a, b = b, a
	}
	return If((aValue == "") != (bValue == ""), field.Required(path, fmt.Sprintf("has %s, which needs %s too", a, b)))
}

// Template returns the error of a template that cannot be used.
func Template(path *field.Path, example string, err error) *field.Error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the template, which the excerpt shows
	}
	return field.Forbidden(path, fmt.Sprintf("must be a template such as %s: %v", example, err))
}

// Key has the facts about a key in addition to its type. Validation, the JSON Schema and the
// reference use it.
type Key struct {
	Limit    Limit    // of a number; its zero value: none
	Pattern  string   // regular expression of a text
	Message  string   // what an editor says about a text that does not match
	Required bool     // the mapping must have it
	NotEmpty bool     // of a text or a list
	Most     uint64   // the maximum number of keys of a mapping; 0: all
	Together []string // keys of a mapping that require each other
}

// URL returns the Key of an HTTP server's URL.
func URL() Key {
	return Key{
		Pattern: `^https?://[^@/#? ]+(/[^#]*)?(\?[^#]*)?$`,
		Message: "must be a URL such as https://host/path, without user and password",
	}
}
