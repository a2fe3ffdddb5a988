package consume

import "time"

// LookAfter makes a reader ask the server after so much quiet, instead of after the heartbeat of a subscription.
func LookAfter(r Reader, d time.Duration) { r.(*jetStreamReader).lookAfter = d }
