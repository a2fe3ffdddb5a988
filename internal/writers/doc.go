// Package writers reads from a record which agents have observed which scopes. An agent ends its scopes itself. For an
// agent that does not return, an operator does it: kubecdc record end.
//
// A scope counts as observed by a writer until the writer ends it (scope.ended), whatever other writers say. Each
// writer has its runs, of which only the last one may work.
package writers
