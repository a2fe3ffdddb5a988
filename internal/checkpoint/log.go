package checkpoint

import "slices"

// Log identifies one log of the bus: a JetStream stream or a Kafka topic. If its identity differs
// from that of the last run, or if it ends before the acknowledged position, the bus has lost
// acknowledged records.
type Log struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"` // Kafka's cluster id
	// ID changes when the log is created again; "" if it could not be read.
	ID string `json:"id,omitempty"`
	// Acked is, by partition, the position after the last acknowledged record.
	Acked []uint64 `json:"acked,omitempty"`
	// Replaced is the number of the replacement that created this log, 0 if none is known. A scope
	// with a lower number in Scope.Log has records in a lost log.
	Replaced uint64 `json:"replaced,omitempty"`
}

// Logs returns the logs of the loaded checkpoint, and the highest replacement number in it.
func (k *Keeper) Logs() (logs []Log, last uint64) {
	for i := range k.loadedLogs {
		last = max(last, k.loadedLogs[i].Replaced)
	}
	for _, s := range k.loaded {
		last = max(last, s.Log)
	}
	return slices.Clone(k.loadedLogs), last
}

// TrackLogs registers the source of the logs. Each save calls it after the positions of scopes, so
// that the logs have all records that these positions count as acknowledged. logs must not block.
// Without it, saves keep the loaded logs.
func (k *Keeper) TrackLogs(logs func() []Log) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs = logs
}

// pullLogs returns the current logs.
func (k *Keeper) pullLogs() []Log {
	k.mu.Lock()
	logs := k.logs
	k.mu.Unlock()
	if logs == nil {
		return k.loadedLogs
	}
	return logs()
}

// sameLogs reports whether the identities are equal. Acknowledged positions need no save of their
// own.
func sameLogs(a, b []Log) bool {
	return slices.EqualFunc(a, b, func(a, b Log) bool {
		return a.Name == b.Name && a.Cluster == b.Cluster && a.ID == b.ID && a.Replaced == b.Replaced
	})
}
