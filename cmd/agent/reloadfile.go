package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// loaded is a configuration with what it was read from.
type loaded struct {
	*config.Config

	hash string // sha256 of the file's content in hex, "": there is no file
	key  []byte // content of redaction.keyFile, nil: there is none
}

// load reads the configuration and the key that it names.
func load(f *runFlags) (*loaded, error) {
	if f.config == "" {
		cfg, err := loadConfig(f)
		return &loaded{Config: cfg}, err
	}
	data, err := readConfigFile(f)
	if err != nil {
		return nil, err
	}
	return loadFrom(f, data, readKeyFile)
}

// loadFrom is load of a file whose content is there already, and whose key read reads. Where the key is what is wrong, the rest is
// returned with the error.
func loadFrom(f *runFlags, data []byte, read func(path string) ([]byte, error)) (*loaded, error) {
	cfg, err := parseConfig(f, data)
	if err != nil {
		return nil, err
	}
	l := &loaded{Config: cfg, hash: hashOf(data)}
	if cfg.Redaction.KeyFile == "" {
		return l, nil
	}
	if l.key, err = read(cfg.Redaction.KeyFile); err != nil {
		return l, usageError{fmt.Errorf("redaction.keyFile: %w", err)}
	}
	// Without the newline that an editor or echo puts behind it.
	l.key = bytes.TrimSuffix(l.key, []byte{'\n'})
	return l, nil
}

// What is far above any configuration, and any key.
const (
	maxConfigBytes = 1 << 20
	maxKeyBytes    = 64 << 10
)

// readKeyFile reads a key that values are hashed with. An error names the file and has nothing of its content.
func readKeyFile(path string) ([]byte, error) { return readUpTo(path, maxKeyBytes) }

// readUpTo reads a file of at most n bytes. To open what is no regular file might take for ever.
func readUpTo(path string, n int64) ([]byte, error) {
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, n+1))
	if err == nil && int64(len(data)) > n {
		err = fmt.Errorf("%s is larger than %d bytes", path, n)
	}
	return data, err
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// reading is what was found at one time in the configuration file and in the keys that it names, or named.
type reading struct {
	fileContent // of the configuration

	keys map[string]fileContent // by path
}

// fileContent is that of a file, or why it could not be read.
type fileContent struct {
	data []byte
	err  error
}

// readConfigured reads by path: what a ConfigMap's volume has is a symlink to a symlink, which is swapped.
func readConfigured(file string, keys []string) reading {
	r := reading{keys: map[string]fileContent{}}
	r.data, r.err = readUpTo(file, maxConfigBytes)
	for _, path := range keys {
		var k fileContent
		k.data, k.err = readKeyFile(path)
		r.keys[path] = k
	}
	return r
}

// sum is the same for the same content of the configuration and of these keys, which were read.
func (r reading) sum(keys []string) string {
	sum := sha256.New()
	add := func(c fileContent) {
		text := c.data
		if c.err != nil {
			text = []byte(c.err.Error())
		}
		fmt.Fprintf(sum, "%t %d ", c.err == nil, len(text))
		sum.Write(text)
	}
	add(r.fileContent)
	for _, path := range keys {
		add(r.keys[path])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// key is what was read of a key. One that was not is read now.
func (r reading) key(path string) ([]byte, error) {
	if k, ok := r.keys[path]; ok {
		return k.data, k.err
	}
	return readKeyFile(path)
}

// follows tells that all of the keys were read.
func (r reading) follows(keys []string) bool {
	for _, path := range keys {
		if _, ok := r.keys[path]; !ok {
			return false
		}
	}
	return true
}

// keysOf are the files of keys that the configurations name.
func keysOf(all ...*loaded) []string {
	var keys []string
	for _, l := range all {
		if l != nil && l.Redaction.KeyFile != "" {
			keys = append(keys, l.Redaction.KeyFile)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// complaints are the errors of a configuration, one each, without the lines of the file that they are about.
func complaints(err error) []string {
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
