// Package writers reads from a record which agents have observed which scopes. An agent ends its
// scopes itself. For an agent that does not return, an operator does it: kubecdc record end.
//
// A scope counts as observed by a writer until the writer ends it (scope.ended), whatever other
// writers say. A writer has one run after another. Only the last one may still work.
package writers
