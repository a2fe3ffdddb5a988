package agent

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/config"
)

// writer is an agent as a writer of records.
type writer struct {
	name       string
	checkpoint string // what it keeps its positions in, for people
	node       string // "": none
}

// findWriter returns the agent as a writer of records.
func (a *agent) findWriter(id *identity) (writer, error) {
	location, err := a.locateCheckpoint(id)
	if err != nil {
		return writer{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return writer{}, fmt.Errorf("the name of this machine: %w", err)
	}
	node := nodeOf(a.cfg)
	kept := keptIn(&location, host)
	return writer{name: writerOf(id.uid, kept, node), checkpoint: strings.Join(kept, " "), node: node}, nil
}

// nodeOf returns the node of an agent in mode node, "" of others.
func nodeOf(cfg *config.Config) string {
	if cfg.Mode != config.ModeNode {
		return ""
	}
	return os.Getenv(NodeNameEnv)
}

// keptIn returns the kind of place in which an agent keeps its positions, and what names the place.
// host is the name of the machine: it counts if no ConfigMap keeps the positions.
func keptIn(l *checkpointLocation, host string) []string {
	switch {
	case l.ConfigMap != nil:
		return []string{"configMap", l.ConfigMap.Namespace, l.ConfigMap.Name}
	case l.File != "":
		path, err := filepath.Abs(l.File)
		if err != nil {
			path = l.File
		}
		return []string{"file", host, path}
	}
	return []string{"none", host}
}

// writerOf returns the name of a writer of records: the same agent after a restart, and nobody
// else. It is made from what the agent keeps its positions in, and for an agent in mode node from
// its node. kept is the result of keptIn.
func writerOf(uid string, kept []string, node string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{uid, node}, kept...), "\x00")))
	return fmt.Sprintf("%x", sum[:8])
}

// runOf returns the name of a run of a writer: a term of one process. epoch is that of the
// election, 0 without one.
func runOf(epoch uint64, began time.Time) string {
	return fmt.Sprintf("%d-%d", epoch, began.UnixMilli())
}
