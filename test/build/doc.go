// Package build builds the agent's binary for tests that run it as a child process, and finds the
// repository.
//
// # Environment
//
//	KUBECDC_E2E_AGENT=path  is used as the agent's binary instead of building one
//	KUBECDC_E2E_RACE=1      builds the agent with the race detector
package build
