package reload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Loaded is a configuration with the content of its files.
type Loaded struct {
	*config.Config

	Hash string // sha256 of the file's content in hex; "" without a file
	Key  []byte // content of redaction.keyFile; nil without one
}

// Load parses the content of a file and reads the key that it names. If only the key is wrong, the
// rest is returned with the error.
func Load(
	data []byte, parse func(data []byte) (*config.Config, error), readKey func(path string) ([]byte, error),
) (*Loaded, error) {
	cfg, err := parse(data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	l := &Loaded{Config: cfg, Hash: hex.EncodeToString(sum[:])}
	if cfg.Redaction.KeyFile == "" {
		return l, nil
	}
	l.Key, err = readKey(cfg.Redaction.KeyFile)
	if err != nil {
		return l, fmt.Errorf("redaction.keyFile: %w", err)
	}
	l.Key = bytes.TrimSuffix(l.Key, []byte{'\n'}) // editors and echo append it
	return l, nil
}

// MAC returns the keyed hash for redacted values, nil if they are removed.
func (l *Loaded) MAC() (*object.MAC, error) {
	if l.Redaction.Mode != config.RedactHash {
		return nil, nil
	}
	m, err := object.NewMAC(l.Key, l.Redaction.AcrossObjects)
	if err != nil {
		return nil, fmt.Errorf("redaction.keyFile: %s: %w", l.Redaction.KeyFile, err)
	}
	return m, nil
}

// LogRedaction logs how values that must not leave the cluster are treated.
func (l *Loaded) LogRedaction(log *slog.Logger) {
	if !l.Redaction.Secrets {
		log.Warn("the values of Secrets are sent as they are: redaction.secrets is false",
			"advice",
			"leave redaction.secrets out of the configuration, or set it to true; what was sent until then stays on the bus")
	}
	if m, err := l.MAC(); err == nil && m != nil {
		log.Info("redacted values are replaced by keyed hashes", "key_id", m.ID(), "across_objects",
			l.Redaction.AcrossObjects)
	}
}

// keysOf returns the key files that the configurations name.
func keysOf(all ...*Loaded) []string {
	var keys []string
	for _, l := range all {
		if l != nil && l.Redaction.KeyFile != "" {
			keys = append(keys, l.Redaction.KeyFile)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// problemsOf returns the errors of a configuration without their excerpts.
func problemsOf(err error) []string {
	var invalid yamldoc.Errors
	if !errors.As(err, &invalid) {
		return []string{err.Error()}
	}
	const most = 20
	var out []string
	for i, e := range invalid {
		if i == most {
			return append(out, fmt.Sprintf("and %d more: kubecdc config check shows all", len(invalid)-most))
		}
		text := e.Message
		if e.Path != "" {
			text = e.Path + ": " + text
		}
		if e.Line > 0 {
			text = fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, text)
		}
		out = append(out, text)
	}
	return out
}
