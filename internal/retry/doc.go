// Package retry repeats requests with exponential backoff and jitter, and with at least the delay
// that an API server requests.
package retry
