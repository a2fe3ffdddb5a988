// Package subjectfilter chooses the subjects that a reader requests from a JetStream, so that the
// server does not send records that the reader would discard.
//
// The filter never omits a record that the reader wants. If the subjects cannot express a part of
// the query, the server sends more records, and the reader filters them as before. The filter
// always includes subjects with another number of tokens than the template's. Check detects other
// subjects that the template does not make; then the reader requests all records.
//
// The package starts no goroutines.
package subjectfilter
