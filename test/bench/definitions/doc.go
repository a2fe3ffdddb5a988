// Package definitions runs a cluster with many custom resources: a real control plane with a
// thousand CustomResourceDefinitions and some objects of each. It measures what an agent's start
// costs in a cluster with hundreds of installed operators. The API server's audit log shows the
// requests of each user.
//
// For the API server, users are ServiceAccounts, so API Priority and Fairness applies to them as in
// a cluster. Everything is created by an administrator, who is exempt from it.
//
// Goroutines: some that create the definitions and objects; all have ended when Start returns.
package definitions
