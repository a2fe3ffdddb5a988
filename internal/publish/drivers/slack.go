package drivers

import (
	"errors"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// Slack is a channel of Slack, by an incoming webhook or by a token and the channel's name. Only relays send to it.
type Slack struct {
	URLFile   string `yaml:"urlFile,omitempty"` // contains the webhook's URL, which is a secret
	TokenFile string `yaml:"tokenFile,omitempty"`
	Channel   string `yaml:"channel,omitempty"` // "#deploys" or its id, with TokenFile
}

func slackDriver() *driver.Driver {
	return &driver.Driver{
		Name: "slack", Schemes: []string{"slack"}, URL: "slack:FILE", ObjectsOnly: true,
		Default: func() driver.Config { return new(Slack) },
	}
}

// SetURL implements driver.Config.
func (s *Slack) SetURL(url string) error {
	name := strings.TrimPrefix(url, "slack:")
	if name == "" || strings.HasPrefix(name, "http") {
		return errors.New("must be slack:FILE, with the URL of a webhook in the file")
	}
	name, err := filepath.Abs(name)
	s.URLFile = name
	return err
}

// Validate implements driver.Config.
func (s *Slack) Validate(path *field.Path, _ *driver.Facts) field.ErrorList {
	list := check.OnlyOne(path, "way", true, check.Choice{Name: "urlFile", Is: s.URLFile != ""}, check.Choice{Name: "tokenFile", Is: s.TokenFile != ""})
	switch {
	case len(list) > 0:
	case s.TokenFile != "" && s.Channel == "":
		list = append(list, field.Required(path.Child("channel"), `is missing: with tokenFile, the channel has to be named, such as "#deploys"`))
	case s.URLFile != "" && s.Channel != "":
		list = append(list, field.Forbidden(path.Child("channel"), "is of no use with urlFile: a webhook belongs to one channel; leave it out"))
	}
	list = append(list, check.SecretFile(path.Child("urlFile"), s.URLFile)...)
	return append(list, check.SecretFile(path.Child("tokenFile"), s.TokenFile)...)
}

// Summary implements driver.Config.
func (*Slack) Summary() driver.Summary { return driver.Summary{Kind: "slack"} }

// Open implements driver.Config.
func (s *Slack) Open(e *driver.Env) (publish.Bus, error) {
	return relay.NewSlack(relay.SlackConfig{URLFile: s.URLFile, TokenFile: s.TokenFile, Channel: s.Channel, Fence: e.Fence}, e.Log), nil
}
