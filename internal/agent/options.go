package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent/reload"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Options are the settings of an agent that are not in its configuration file.
type Options struct {
	Config  string    // path of the configuration file; "" for the defaults
	Stdin   io.Reader // content of the configuration "-"; nil: "-" is an ordinary file
	Bus     string    // URL of the bus, overrides the file; "" for the bus in the file
	DataDir string    // directory of the embedded JetStream; "" for one per cluster
	Grace   time.Duration
	Build   admin.Build

	Kubeconfig, Context string // select the cluster; "" for the defaults, or the pod's service account

	Overrides
}

// Overrides override keys of the configuration file.
type Overrides struct {
	Set      []string // KEY=VALUE
	LogLevel string   // log.level, overrides Set
}

// ConfigError is an error in the configuration or in an option: the agent fails with it at every
// start.
type ConfigError struct{ Err error }

func (e ConfigError) Error() string { return e.Err.Error() }
func (e ConfigError) Unwrap() error { return e.Err }

// Parse returns the overrides in the order in which they are applied.
func (o *Overrides) Parse() ([]yamldoc.Override, error) {
	var parsed []yamldoc.Override
	for _, text := range o.Set {
		p, err := yamldoc.ParseOverride("--set", text)
		if err != nil {
			return nil, ConfigError{fmt.Errorf("--set: %w", err)} // without the text, which may contain a secret
		}
		parsed = append(parsed, p)
	}
	if o.LogLevel != "" {
		parsed = append(parsed, yamldoc.Override{Source: "--log-level", Path: "log.level", Value: o.LogLevel})
	}
	return parsed, nil
}

// touches reports whether an override sets a key or a part of it.
func (o *Overrides) touches(key string) bool {
	for _, text := range o.Set {
		rest, ok := strings.CutPrefix(text, key)
		if ok && rest != "" && strings.ContainsRune(".[=", rune(rest[0])) {
			return true
		}
	}
	return false
}

// IsEmbedded reports whether the agent runs an embedded JetStream.
func (o *Options) IsEmbedded() bool { return o.Config == "" && o.Bus == "" && !o.touches("bus") }

// checkDataDir returns an error for a directory of the embedded JetStream if another bus is named.
func (o *Options) checkDataDir() error {
	if o.DataDir != "" && !o.IsEmbedded() {
		return ConfigError{
			errors.New(
				"--data-dir is the directory of the embedded JetStream, which runs only without --config and --bus: " +
					"remove one or the other"),
		}
	}
	return nil
}

// LoadConfig reads the file, if there is one, and applies the overrides.
func (o *Options) LoadConfig() (*config.Config, error) {
	data, err := o.readConfig()
	if err != nil {
		return nil, err
	}
	return o.parse(data)
}

func (o *Options) readConfig() ([]byte, error) {
	if o.Config == "" {
		return []byte(config.Empty), nil
	}
	data, name, err := ReadConfig(o.Stdin, o.Config)
	o.Config = name // in error messages
	return data, err
}

// ReadConfig reads a configuration file, or stdin if the file is "-" and stdin is not nil. It
// returns the name for error messages.
func ReadConfig(stdin io.Reader, file string) (data []byte, name string, err error) {
	if file == "-" && stdin != nil {
		data, err = readLimited(stdin)
		file = "standard input"
	} else {
		data, err = readFile(file)
	}
	if err != nil {
		return nil, file, ConfigError{fmt.Errorf("read configuration: %w", err)}
	}
	return data, file, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	return readLimited(f)
}

// readLimited reads at most one byte more than a configuration may have: parsing it then returns
// the error. The reader may be a device or a pipe that never ends.
func readLimited(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, yamldoc.MaxBytes+1))
}

// parse returns the configuration in the content of a file, after the overrides.
func (o *Options) parse(data []byte) (*config.Config, error) {
	if err := o.checkDataDir(); err != nil {
		return nil, err
	}
	set, err := o.Parse()
	if err != nil {
		return nil, err
	}
	file, err := config.ParseOverridden(data, o.Config, set, CheckRules)
	if err != nil {
		return nil, err
	}
	cfg := file.Config
	if o.Bus == "" {
		return cfg, nil
	}
	b, err := BusFromURL(o.Bus, cfg.Bus)
	if err != nil {
		return nil, err
	}
	cfg.UseBus(b)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// load reads the configuration and its redaction key.
func (o *Options) load() (*reload.Loaded, error) {
	data, err := o.readConfig()
	if err != nil {
		return nil, err
	}
	l, err := reload.Load(data, o.parse, reload.ReadKeyFile)
	if l != nil && err != nil {
		return nil, ConfigError{err} // of the key
	}
	return l, err
}

// BusFromURL returns the bus of a URL. If the configured bus is of the same kind, its other
// settings apply.
func BusFromURL(url string, configured config.Bus) (config.Bus, error) {
	b, ok := BusOf(url, "", configured)
	if !ok { // the URL is not repeated: it may contain a password
		return nil, ConfigError{
			fmt.Errorf("--bus: must be %s (several servers of one cluster separated by commas)",
				catalog.URLs(catalog.Buses())),
		}
	}
	return b, nil
}
