package localbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kubecdc/kubecdc/internal/atomicfile"
	"github.com/kubecdc/kubecdc/internal/filelock"
)

// The files of a directory.
const (
	clusterFile = "cluster.json"
	lockFile    = "lock"
	busFile     = "bus.json"
	recordsDir  = "jetstream" // the server chooses this name
)

// format is the format of cluster.json that this release writes and reads.
const format = 1

// marker is the content of cluster.json.
type marker struct {
	Format    int       `json:"format"`
	Cluster   string    `json:"cluster"` // uid
	APIServer string    `json:"apiServer"`
	Created   time.Time `json:"created"`
}

// presence is the content of bus.json.
type presence struct {
	PID     int       `json:"pid"`
	URL     string    `json:"url,omitempty"`   // omitted until the server accepts connections
	Token   string    `json:"token,omitempty"` // that the server requires; url and token are those of a context of nats
	Agent   string    `json:"agent,omitempty"`
	Started time.Time `json:"started"`
}

// directory is a data directory that this process has locked.
type directory struct {
	path    string
	lock    *os.File
	agent   string
	started time.Time
}

// openDirectory creates the directory if necessary, locks it, and checks that it belongs to the
// cluster.
func openDirectory(ctx context.Context, o *Options) (_ *directory, err error) {
	path, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	unusable := func(err error) error {
		return fmt.Errorf("data directory %s: %w: correct this, or choose another with --data-dir", path,
			withoutPath(err))
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusable(err)
	}
	if err := checkOwner(path); err != nil {
		return nil, unusable(err)
	}
	d := &directory{path: path, agent: o.Agent, started: time.Now()}
	d.lock, err = os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusable(err)
	}
	defer func() {
		if err != nil {
			_ = d.lock.Close()
		}
	}()
	if err := d.acquire(ctx); err != nil {
		return nil, err
	}
	if err := d.claim(o); err != nil {
		return nil, err
	}
	need := cmp.Or(o.MinFree, minFree)
	if room, err := available(path); err == nil && room < need {
		return nil, fmt.Errorf("data directory %s: the disk is full: %d MiB are free, %d MiB are needed to start: "+
			"make room, or choose a directory on another disk with --data-dir", path, room>>20, need>>20)
	}
	if err := d.announce("", ""); err != nil {
		return nil, unusable(err)
	}
	return d, nil
}

// acquire locks the directory.
func (d *directory) acquire(ctx context.Context) error {
	err := filelock.Wait(ctx, d.lock)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		who := "another kubecdc"
		var p presence
		if read(filepath.Join(d.path, busFile), &p) == nil && p.PID != 0 {
			who = fmt.Sprintf("another kubecdc (pid %d)", p.PID)
		}
		return fmt.Errorf("data directory %s: in use by %s: stop it, or choose another directory with --data-dir",
			d.path, who)
	case err != nil:
		return fmt.Errorf("data directory %s: lock: %w", d.path, err)
	}
	return nil
}

// claim checks that the directory belongs to the cluster, or assigns a new directory to it.
func (d *directory) claim(o *Options) error {
	file := filepath.Join(d.path, clusterFile)
	const remedy = "move the directory away, or choose another with --data-dir"
	var version struct {
		Format int `json:"format"`
	}
	var m marker
	err := read(file, &version)
	if err == nil && version.Format <= format { // in a later format, the rest may have any shape
		err = read(file, &m)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Join(d.path, recordsDir)); err == nil {
			return fmt.Errorf("data directory %s has records, but no %s that names their cluster: %s", d.path,
				clusterFile, remedy)
		}
		m = marker{
			Format:    format,
			Cluster:   o.Cluster,
			APIServer: o.APIServer,
			Created:   time.Now().UTC().Truncate(time.Second),
		}
		if err := write(file, &m); err != nil {
			return fmt.Errorf("data directory %s: %w", d.path, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("%s is damaged or cannot be read: %w: %s", file, withoutPath(err), remedy)
	case version.Format > format:
		return fmt.Errorf(
			"%s was written by a newer kubecdc (format %d, this one supports %d): use that version, or choose another directory with --data-dir",
			file, version.Format, format)
	case m.Format != format || m.Cluster == "":
		return fmt.Errorf("%s is damaged: it names no format or no cluster: %s", file, remedy)
	case m.Cluster != o.Cluster:
		return fmt.Errorf("data directory %s holds the records of another cluster:\n"+
			"  there  %s (%s, since %s)\n  now    %s (%s)\n"+
			"choose another directory with --data-dir, or leave it out: then each cluster has its own",
			d.path, m.Cluster, m.APIServer, m.Created.Format(time.DateOnly), o.Cluster, o.APIServer)
	}
	return nil
}

// announce notes this process as the user of the directory, and how its clients connect.
func (d *directory) announce(url, token string) error {
	return write(filepath.Join(d.path, busFile), &presence{
		PID:     os.Getpid(),
		URL:     url,
		Token:   token,
		Agent:   d.agent,
		Started: d.started,
	})
}

// close unlocks the directory. The lock file stays: if it were removed, two agents could lock
// different files of that name.
func (d *directory) close() error {
	err := os.Remove(filepath.Join(d.path, busFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, d.lock.Close())
}

// read decodes a JSON file.
func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// write replaces a JSON file. Only the lock holder writes, so the temporary file can have a fixed
// name: the next write overwrites a leftover of a killed process.
func write(file string, content any) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil { // a leftover may have another mode
		return errors.Join(err, f.Close())
	}
	return atomicfile.Replace(file, f, append(data, '\n'), nil)
}

// withoutPath removes the path from an error of package os, because the caller's message has it
// already.
func withoutPath(err error) error {
	if p := new(fs.PathError); errors.As(err, &p) {
		return p.Err
	}
	return err
}
