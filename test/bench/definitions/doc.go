// Package definitions is a cluster with many resources of its own: a real control plane with a thousand CustomResourceDefinitions
// and some objects of each, for what an agent costs at its start where hundreds of operators are installed. It tells of each user
// what the API server was asked, by its audit log.
//
// Users are ServiceAccounts as far as the API server can tell, so that API Priority and Fairness holds for them as it does in a
// cluster. Everything is made by an administrator, who is exempt from it.
//
// Goroutines: while definitions and objects are made, some that make them; all have ended when Start returns.
package definitions
