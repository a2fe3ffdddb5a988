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

// writer returns the agent's name as a writer of records.
func (a *agent) writer(id *identity) (string, error) {
	location, err := a.locateCheckpoint(id)
	if err != nil {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the name of this machine: %w", err)
	}
	node := ""
	if a.cfg.Mode == config.ModeNode {
		node = os.Getenv(NodeNameEnv)
	}
	return writerOf(id.uid, &location, host, node), nil
}

// writerOf returns the name of a writer of records: the same agent after a restart, and nobody
// else. It is made from what the agent keeps its positions in, and for an agent in mode node from
// its node. host is the name of the machine: it counts if no ConfigMap keeps the positions.
func writerOf(uid string, l *checkpointLocation, host, node string) string {
	kept := []string{"none", host}
	switch {
	case l.ConfigMap != nil:
		kept = []string{"configMap", l.ConfigMap.Namespace, l.ConfigMap.Name}
	case l.File != "":
		path, err := filepath.Abs(l.File)
		if err != nil {
			path = l.File
		}
		kept = []string{"file", host, path}
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{uid, node}, kept...), "\x00")))
	return fmt.Sprintf("%x", sum[:8])
}

// runOf returns the name of a run of a writer: a term of one process. epoch is that of the
// election, 0 without one.
func runOf(epoch uint64, began time.Time) string {
	return fmt.Sprintf("%d-%d", epoch, began.UnixMilli())
}
