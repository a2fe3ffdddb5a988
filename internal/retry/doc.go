// Package retry spaces out repeated requests: exponential backoff with jitter, at least as far apart as the server asks for.
package retry
