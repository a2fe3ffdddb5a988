// Package slackconfig has the settings of the target "slack" of relays, as a configuration reads
// and checks them. Package relay runs with them.
//
// It is pure: no files, no connections.
package slackconfig

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Config is a channel of Slack, by an incoming webhook or by a token and the channel's name.
// Only relays send to it.
type Config struct {
	URLFile   string `yaml:"urlFile,omitempty"`   // contains the webhook's URL, which is a secret
	TokenFile string `yaml:"tokenFile,omitempty"` // contains a bot's token with the scope chat:write
	Channel   string `yaml:"channel,omitempty"`   // "#deploys" or its id, with TokenFile

	APIURL string        `yaml:"-"` // "": that of Slack; for tests
	Every  time.Duration `yaml:"-"` // between two messages; 0: a second, Slack's limit
	Fence  publish.Fence `yaml:"-"` // checked before each message; nil permits everything
}

// Driver returns the driver of the target "slack".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name:        "slack",
		Schemes:     []string{"slack"},
		URL:         "slack:FILE",
		ObjectsOnly: true,
		Default:     func() driver.Config { return new(Config) },
	}
}

// SetURL implements driver.Config.
func (c *Config) SetURL(url string) (err error) {
	name := strings.TrimPrefix(url, "slack:")
	if name == "" || strings.HasPrefix(name, "http") {
		return errors.New("must be slack:FILE, with the URL of a webhook in the file")
	}
	c.URLFile, err = filepath.Abs(name)
	return err
}

// Validate implements driver.Config.
func (c *Config) Validate(path *field.Path, _ *driver.Facts) field.ErrorList {
	list := check.OnlyOne(path, "way", true, check.Choice{Name: "urlFile", Is: c.URLFile != ""}, check.Choice{
		Name: "tokenFile",
		Is:   c.TokenFile != "",
	})
	switch {
	case len(list) > 0:
	case c.TokenFile != "" && c.Channel == "":
		list = append(list,
			field.Required(path.Child("channel"), `is missing: tokenFile requires a channel, such as "#deploys"`))
	case c.URLFile != "" && c.Channel != "":
		list = append(list,
			field.Forbidden(path.Child("channel"),
				"has no effect with urlFile, because a webhook belongs to one channel; remove it"))
	}
	list = append(list, check.SecretFile(path.Child("urlFile"), c.URLFile)...)
	return append(list, check.SecretFile(path.Child("tokenFile"), c.TokenFile)...)
}

// Summary implements driver.Config.
func (*Config) Summary() driver.Summary { return driver.Summary{Kind: "slack"} }
