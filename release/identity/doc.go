// Package identity has the test of the identity policy that docs/guides/install.md tells users to verify with. It is a module of
// its own, because sigstore-go needs a later Go than the agent, and many modules.
//
// A replace directive in go.mod chooses a version of timestamp-authority that the module proxy serves.
package identity
