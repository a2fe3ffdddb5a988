package fromkafka

import "time"

const (
	apiTimeout  = 10 * time.Second
	dialTimeout = 5 * time.Second
	// retryFirst and retryMax limit the pauses between attempts.
	retryFirst = 100 * time.Millisecond
	retryMax   = 2 * time.Second
)
