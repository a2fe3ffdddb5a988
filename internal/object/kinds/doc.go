// Package kinds has the table of the kinds that Kubernetes itself serves with the verbs list and
// watch. It has the words for them, their groups, and whether objects have a namespace. It is for
// whoever cannot ask an API server: the configuration, and the commands that read a record.
//
// Custom resources and what else a cluster serves come from discovery, or from the CRDs in a
// record.
package kinds
