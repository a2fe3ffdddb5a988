// Package selection decides what is captured: it applies the rules of the configuration to the
// resources that the API server serves, and to each object. It is pure: it makes no request, starts
// no goroutine and keeps no state between calls.
//
//	Spec ──Compile──▶ Selection ──Choose──▶ Choice ──Scopes──▶ Scope ──Scan──▶ object, clause
//	rules             meaning of the        a resource        one list        which rule takes
//	                  rules together        and its rules     and watch       an object
//
// A Rule selects resources by patterns, and takes those of their objects that match its namespaces
// and selectors. Rules are tried in order for each object: the first one that matches takes the
// object, and decides how it is redacted and filtered.
//
// A Scope is listed and watched by one informer: a resource in all namespaces or in one, under
// selectors that the API server applies. It has a Clause for each rule that can take objects of the
// resource. The API server applies the selectors of a single clause. If there are several, it
// applies only those common to all of them, and the agent does the rest (Scanner).
//
// # Invariants
//
//   - No object is in two scopes of one Selection, even if the API server serves it under two
//     names.
//   - The name of a scope says which objects are in it. It does not depend on the order of the
//     rules.
//   - A Scanner determines which clause takes an object before it copies any of it. An object that
//     no clause takes is redacted by the paths of all clauses.
//   - A Selection, its scopes and its filters are immutable and safe for concurrent use. A Scanner
//     belongs to one goroutine.
package selection
