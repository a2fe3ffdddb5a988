// Package identity has the test of the identity policy in docs/guides/install.md, with which users
// verify a release. It is a module of its own, because sigstore-go needs a later Go than the agent,
// and many modules.
//
// A replace directive in go.mod chooses a version of timestamp-authority that the module proxy
// serves.
package identity
