package reload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// These limits are far above any configuration and any key.
const (
	maxConfigBytes = 1 << 20
	maxKeyBytes    = 64 << 10
)

// ReadKeyFile reads the key for hashes of redacted values. An error names the file but contains
// nothing from it.
func ReadKeyFile(path string) ([]byte, error) { return readUpTo(path, maxKeyBytes) }

// readUpTo reads a file of at most n bytes. It opens only regular files, because opening others,
// such as a pipe, may block forever.
func readUpTo(path string, n int64) ([]byte, error) {
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(f, n+1))
	if err == nil && int64(len(data)) > n {
		err = fmt.Errorf("%s is larger than %d bytes", path, n)
	}
	return data, err
}

// reading is the content of the configuration file, and of the keys that it names or has named, at
// one time.
type reading struct {
	fileContent // of the configuration

	keys map[string]fileContent // by path
}

// fileContent is the content of a file, or the error of reading it.
type fileContent struct {
	data []byte
	err  error
}

// readConfigured reads by path: in the volume of a ConfigMap, the file is a symlink to a symlink,
// which is swapped.
func readConfigured(file string, keys []string) reading {
	r := reading{keys: map[string]fileContent{}}
	r.data, r.err = readUpTo(file, maxConfigBytes)
	for _, path := range keys {
		var k fileContent
		k.data, k.err = ReadKeyFile(path)
		r.keys[path] = k
	}
	return r
}

// sum returns a hash of the configuration and of keys, which must have been read.
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

// key returns the content of a key. If it was not read, it is read now.
func (r reading) key(path string) ([]byte, error) {
	if k, ok := r.keys[path]; ok {
		return k.data, k.err
	}
	return ReadKeyFile(path)
}

// follows reports whether all of the keys were read.
func (r reading) follows(keys []string) bool {
	for _, path := range keys {
		if _, ok := r.keys[path]; !ok {
			return false
		}
	}
	return true
}

// hash returns the sha256 of the content in hex.
func (c fileContent) hash() string {
	sum := sha256.Sum256(c.data)
	return hex.EncodeToString(sum[:])
}
