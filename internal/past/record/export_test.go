package record

import "time"

// SetReadBefore sets how long before a moment the stream events are read first.
func (r *Record) SetReadBefore(d time.Duration) { r.before = d }
