package checkpoint

import "slices"

// Log is what is known of one log of the bus: a stream of JetStream, or a topic of Kafka. If its identity is another than in the
// last run, or if it ends below what was acknowledged, the bus has lost acknowledged records.
type Log struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"` // of Kafka
	// ID changes when the log is created again. "": it could not be read.
	ID string `json:"id,omitempty"`
	// Acked is by partition the position that follows the last acknowledged record.
	Acked []uint64 `json:"acked,omitempty"`
	// Replaced is the number of the replacement that this log began with, 0: none is known. A scope with a lower number in Scope.Log
	// has records in a log that is lost.
	Replaced uint64 `json:"replaced,omitempty"`
}

// Logs is what the last run knew of the logs of the bus, and the highest number of a replacement that it has left.
func (k *Keeper) Logs() (logs []Log, last uint64) {
	for i := range k.loadedLogs {
		last = max(last, k.loadedLogs[i].Replaced)
	}
	for _, s := range k.loaded {
		last = max(last, s.Log)
	}
	return slices.Clone(k.loadedLogs), last
}

// TrackLogs has logs asked whenever something is saved, after the positions of scopes: what these positions rest on is in them. It
// must not block. Without it, what the last run knew stays.
func (k *Keeper) TrackLogs(logs func() []Log) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs = logs
}

// pullLogs asks for the logs.
func (k *Keeper) pullLogs() []Log {
	k.mu.Lock()
	logs := k.logs
	k.mu.Unlock()
	if logs == nil {
		return k.loadedLogs
	}
	return logs()
}

// sameLogs reports whether the same logs are known. How far they have acknowledged is saved along with the positions of scopes.
func sameLogs(a, b []Log) bool {
	return slices.EqualFunc(a, b, func(a, b Log) bool {
		return a.Name == b.Name && a.Cluster == b.Cluster && a.ID == b.ID && a.Replaced == b.Replaced
	})
}
