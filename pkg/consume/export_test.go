package consume

import "time"

// LookAfter has a reader ask the server after so much quiet, and not after the heartbeat of a subscription.
func LookAfter(r *JetStream, d time.Duration) { r.lookAfter = d }
