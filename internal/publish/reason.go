package publish

// Reasons of a failed attempt that is repeated: values of the label reason of kubecdc_publish_retries_total.
const (
	ReasonTimeout     = "timeout"     // no acknowledgement in time
	ReasonConnection  = "connection"  // the connection broke, or does not exist
	ReasonUnavailable = "unavailable" // no leader, too many requests, offline
	ReasonClaim       = "claim_store" // the claim store did not accept a large event

	// NATS.
	ReasonNoResponders = "no_responders" // no stream has the subject: it is gone, or has no leader
	ReasonStreamFull   = "stream_full"   // discard new: backpressure
	ReasonLimit        = "account_limit" // a limit of the account or the server
	ReasonStore        = "store_failed"  // the server could not write
	ReasonOtherStream  = "other_stream"  // acknowledged by another stream than the configured one
	ReasonRejected     = "rejected"      // any other error of the server
	ReasonMalformed    = "malformed"     // not a JetStream acknowledgement

	// HTTP.
	ReasonCut          = "cut"           // the connection was closed without an answer
	ReasonThrottled    = "throttled"     // 429: backpressure
	ReasonServerError  = "server_error"  // 5xx except 503
	ReasonUnauthorized = "unauthorized"  // 401, 403
	ReasonProxy        = "proxy_refused" // 407
	ReasonNotFound     = "not_found"     // 404
	ReasonRedirect     = "redirect"      // 3xx
	ReasonCredentials  = "credentials"   // headersFile or tokenFile cannot be used
	ReasonTLS          = "tls"           // the handshake failed, or a file for it cannot be used
	ReasonUnexpected   = "unexpected"    // a status that HTTP does not define

	// Kafka.
	ReasonLeader        = "leader"        // the partition has no leader, or another one
	ReasonReplicas      = "replicas"      // too few replicas are in sync
	ReasonStorage       = "storage"       // the broker cannot write
	ReasonAuthorization = "authorization" // the user is unknown, or lacks a permission
	ReasonSequence      = "sequence"      // the broker cannot continue the sequence: another epoch, or producer id
	ReasonSplit         = "split"         // the batch was refused; its events are sent in smaller ones
	ReasonTimestamp     = "timestamp"     // the topic rejects records of that age
	ReasonBroker        = "broker"        // any other error
)
