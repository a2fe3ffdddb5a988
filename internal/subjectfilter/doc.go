// Package subjectfilter chooses the subjects that a reader asks a JetStream for, so that the server does not send records that the reader
// would throw away.
//
// A record that the reader wants is never left out. Where the template of the subjects says less than the reader asks for, more is
// read, and the reader filters as before. Subjects with another number of tokens than the template makes are always read. Check finds the
// others that the template does not make; then the reader asks for all records.
//
// The package starts no goroutines.
package subjectfilter
