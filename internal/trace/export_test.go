package trace

import "time"

// FlushTimeout is for how long Run sends once its context has ended.
const FlushTimeout = flushTimeout

// SetFlush replaces FlushTimeout: a busy machine may take longer for what a test sends.
func (t *Tracer) SetFlush(d time.Duration) { t.flush = d }
