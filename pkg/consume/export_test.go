package consume

import "time"

// LookAfter makes a reader ask the server after so much quiet, instead of after the heartbeat of a subscription.
func LookAfter(r Reader, d time.Duration) { r.(*jetStreamReader).lookAfter = d }

// Waiting reports whether as many messages wait for the reader as it keeps. The next one counts as waiting time.
func Waiting(r Reader) bool { m := r.(*jetStreamReader).sub.messages; return len(m) == cap(m) }
