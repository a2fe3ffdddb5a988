package http

import (
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
)

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
	return check.Limit{Low: yamldoc.Duration{Duration: 100 * time.Millisecond}, High: yamldoc.Duration{Duration: 10 * time.Minute}}
}

// Validate implements driver.Config.
func (cfg *Config) Validate(path *field.Path, f *driver.Facts) field.ErrorList {
	client := cfg.client()
	list := client.validateURL(path)
	list = append(list, check.InLimit(path.Child("batch"), yamldoc.Count(cfg.Batch), keys()["batch"].Limit)...)
	if cfg.Batch > 1 && f.Binary && !f.Target { // a relay sends structured events only
		list = append(list, field.Invalid(path.Child("batch"), cfg.Batch, "must be 1 if event.mode is binary: a batch consists of structured events"))
	}
	list = append(list, client.validateRest(path)...)
	if u, err := url.Parse(cfg.URL); f.Target && err == nil && u.Hostname() == "hooks.slack.com" {
		list = append(list, field.Forbidden(path.Child("url"), "is a webhook of Slack, which accepts no CloudEvents and whose URL is a secret: "+
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

// ValidateFiles checks the files of credentials and certificates for the HTTP server whose URL has the key urlKey.
func ValidateFiles(path *field.Path, urlKey, endpoint, headersFile, tokenFile string, tls *publish.TLS) field.ErrorList {
	list := check.SecretFile(path.Child("headersFile"), headersFile)
	list = append(list, check.SecretFile(path.Child("tokenFile"), tokenFile)...)
	if tls != nil && strings.HasPrefix(endpoint, "http://") {
		list = append(list, field.Forbidden(path.Child("tls"), "has no effect if the "+urlKey+" begins with http://; write https:// there, or remove it"))
	}
	return append(list, tls.Validate(path.Child("tls"))...)
}

// ValidateSecrecy checks the protection of secrets that are sent to an HTTP server.
func ValidateSecrecy(path *field.Path, endpointKey, endpoint, headersFile, tokenFile string, insecure bool) field.ErrorList {
	if insecure || !check.Plaintext(endpoint) {
		return nil
	}
	var list field.ErrorList
	for _, f := range []struct{ key, path string }{{"headersFile", headersFile}, {"tokenFile", tokenFile}} {
		if f.path != "" {
			list = append(list, check.Exposed(path.Child(f.key), "write https:// in "+path.Child(endpointKey).String(), path.Child("insecure").String()+": true"))
		}
	}
	return list
}

func validateDeadURL(path *field.Path, value string, bus driver.Config, _ *driver.Facts) field.ErrorList {
	list := check.Endpoint(value, path)
	if c, ok := bus.(*Config); ok && value == c.URL {
		list = append(list, field.Forbidden(path, "must differ from the URL of the events (bus.http.url), which rejected them"))
	}
	return list
}
