package localbus

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/filelock"
)

// Address is a local bus that is up.
type Address struct {
	URL       string // nats://127.0.0.1:port
	Cluster   string // uid
	APIServer string // URL
	Agent     string // URL of the agent's HTTP server; "" if the agent's release does not write it
	Dir       string
	PID       int
	Started   time.Time
}

// DefaultRoot is the directory with one directory for each cluster: kubecdc below $XDG_DATA_HOME,
// which is ~/.local/share unless set (XDG Base Directory Specification). getenv is os.Getenv.
func DefaultRoot(getenv func(string) string) (string, error) {
	// The specification requires that relative paths are ignored.
	if data := getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "kubecdc"), nil
	}
	home := getenv("HOME")
	if home == "" {
		var err error
		home, err = os.UserHomeDir()
		if err != nil {
			return "",
				errors.New("neither $XDG_DATA_HOME nor $HOME is set: set the directory of the records with --data-dir")
		}
	}
	return filepath.Join(home, ".local", "share", "kubecdc"), nil
}

// Running lists the local buses below root that are up, the last started first. The lock of a bus
// decides, not its files: the lock ends with the process. A root that does not exist has none.
//
// A command without a configured bus uses the first one (agent.FindBus).
//
// An agent with its own --data-dir is not below root; At finds it.
func Running(root string) ([]Address, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for local buses: %w", err)
	}
	var out []Address
	for _, e := range entries {
		if a, ok := At(filepath.Join(root, e.Name())); ok {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Address) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.Dir, b.Dir))
	})
	return out, nil
}

// At returns the bus of a directory, and whether it is up.
func At(dir string) (Address, bool) {
	p, ok := readPresence(dir)
	if !ok {
		return Address{}, false
	}
	var m marker
	if read(filepath.Join(dir, clusterFile), &m) != nil {
		return Address{}, false
	}
	return Address{
		URL:       p.URL,
		Cluster:   m.Cluster,
		APIServer: m.APIServer,
		Agent:     p.Agent,
		Dir:       dir,
		PID:       p.PID,
		Started:   p.Started,
	}, true
}

// Token returns the token for the next connect to the bus of the directory; "" unless the bus is up
// at the URL. Another program may listen there after the bus has ended: it must not receive the
// token of the next run.
func (a *Address) Token() string {
	p, ok := readPresence(a.Dir)
	if !ok || p.URL != a.URL {
		return ""
	}
	return p.Token
}

// readPresence returns what the agent that uses the directory has announced. It returns false if
// there is none, if its server does not accept connections yet, or if another user could have
// written it.
func readPresence(dir string) (presence, bool) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return presence{}, false
	}
	var p presence
	if checkOwner(dir) != nil || read(filepath.Join(dir, busFile), &p) != nil || p.URL == "" {
		return presence{}, false
	}
	lock, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return presence{}, false
	}
	defer func() { _ = lock.Close() }() // releases the lock if Shared acquired it
	return p, errors.Is(filelock.Shared(lock), filelock.ErrLocked)
}
