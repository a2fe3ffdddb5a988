package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubecdc/kubecdc/internal/atomicfile"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/filelock"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const positionVersion = 1

// Position is a file that says how far a replay is. One process at a time has it open.
type Position struct {
	path string
	lock *os.File
	at   positionState
	logs map[consume.Log]uint64
}

type positionState struct {
	Version int               `json:"version"`
	Replay  map[string]string `json:"replay"` // what was asked for, by flag
	From    string            `json:"from"`   // the moments, as a time or a resourceVersion
	To      string            `json:"to"`
	Events  int               `json:"events"` // of the snapshot
	// Snapshot and Logs are where sending continues, the first as the number of an event of the
	// snapshot.
	Snapshot uint64             `json:"snapshot"`
	Logs     []consume.Position `json:"logs"`
	Begun    bool               `json:"begun"`
	Done     bool               `json:"done"`
}

// OpenPosition opens a position file, and creates it if it does not exist. replay says what is
// asked for, by flag. The file has hashes of the secrets, also by flag. from and to are the moments
// of a new replay.
func OpenPosition(
	ctx context.Context, path string, replay, secrets map[string]string, from, to string,
) (*Position, error) {
	replay = maps.Clone(replay)
	for flag, secret := range secrets {
		hash := sha256.Sum256([]byte(secret))
		replay[flag] = hex.EncodeToString(hash[:6])
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Position{path: path, lock: lock, logs: map[consume.Log]uint64{}}
	if err := p.load(ctx, replay, from, to); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (p *Position) load(ctx context.Context, replay map[string]string, from, to string) error {
	if err := filelock.Wait(ctx, p.lock); err != nil {
		return fmt.Errorf("another replay uses the file: %w", err)
	}
	raw, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		p.at = positionState{
			Version: positionVersion,
			Replay:  replay,
			From:    from,
			To:      to,
		}
		return p.write()
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &p.at); err != nil || p.at.Version != positionVersion {
		return errors.New("it is not a replay position: use another file")
	}
	for _, flag := range slices.Sorted(maps.Keys(replay)) {
		if was, is := p.at.Replay[flag], replay[flag]; was != is {
			return fmt.Errorf(
				"it is the position of another replay, with %s %q instead of %q: repeat that command, or use another file",
				flag, was, is)
		}
	}
	for _, at := range p.at.Logs {
		p.logs[at.Log] = at.Next
	}
	return nil
}

// Moments returns the moments of the replay.
func (p *Position) Moments() (from, to string) { return p.at.From, p.at.To }

// Begun reports whether an earlier run may have sent anything, and done whether it has sent all.
func (p *Position) Begun() (begun, done bool) {
	if p == nil {
		return false, false
	}
	return p.at.Begun, p.at.Done
}

// begin returns the positions at which sending continues. events is the number of events of the
// snapshot.
func (p *Position) begin(events int) (map[consume.Log]uint64, error) {
	if p == nil {
		return nil, nil
	}
	if p.at.Events != events { // the record begins later by now, say
		p.at.Events, p.at.Snapshot = events, 0
	}
	p.at.Begun = true
	resume := maps.Clone(p.logs)
	resume[consume.Log{Name: snapshotLog}] = p.at.Snapshot
	return resume, p.write()
}

// save saves how far all is delivered.
func (p *Position) save(marks []driver.Mark) error {
	for _, m := range marks {
		switch m.Name {
		case snapshotLog:
			p.at.Snapshot = m.Position + 1
		case deletionLog, progressLog:
		default:
			p.logs[m.Log] = m.Position + 1
		}
	}
	p.at.Logs = nil
	for log, next := range p.logs {
		p.at.Logs = append(p.at.Logs, consume.Position{Log: log, Next: next})
	}
	return p.write()
}

// finish notes that all is delivered.
func (p *Position) finish() error {
	if p == nil {
		return nil
	}
	p.at.Done = true
	return p.write()
}

// write replaces the file as a whole.
func (p *Position) write() error {
	raw, err := json.MarshalIndent(&p.at, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p.path), filepath.Base(p.path)+".*")
	if err != nil {
		return err
	}
	return atomicfile.Replace(p.path, f, append(raw, '\n'), nil)
}

// Close releases the file.
func (p *Position) Close() error {
	if p == nil {
		return nil
	}
	return p.lock.Close()
}
