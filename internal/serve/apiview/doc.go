// Package apiview serves the objects of a moment as a read-only Kubernetes API, so that kubectl,
// client-go and other clients can be used on the past.
//
//	timeline.State ──NewView──▶ View ──Server──▶ discovery, OpenAPI, get, list, watch, tables
//
// A View is the objects of one moment, compressed as the agent keeps them. Their kinds follow from
// the objects, the CRDs of that moment, and a table of those of Kubernetes itself. Only resources
// that were captured are served, in the version of the record and, for the few of otherVersions, in
// another one. A custom resource without objects at the moment is served if its CRD is in the
// record.
//
// A Server answers for one View at its root, and for any other moment below /at/<moment>/. It opens
// Views when they are asked for, several at once, and keeps the ones that were used last. A moment
// that was not final is opened again later. View.Follow and View.Play replay what follows a moment
// to clients that watch.
//
// # Invariants
//
//   - Nothing can be written: any method but GET is answered 405, except for access reviews, which
//     change nothing.
//   - A request without the token is answered 401, whatever it asks for.
//   - A View does not change, except that a replay shows what follows its moment: the log is made
//     before the view is served, and a client may watch from any place of it.
//   - A Server holds or opens at most MaxMoments Views of /at/, and one more, while it reads that
//     or while requests use all of them. A request for a further one waits, and is answered 429
//     after 10 s in which all are used. A client that does not read its answer is disconnected. An
//     open watch holds none.
//   - A moment is opened once for all requests that ask for it meanwhile. It is opened as long as
//     the client of one of them waits.
//   - Answers are those of a kube-apiserver, in JSON, or in YAML if a client accepts only that.
//     Ages are as of the moment. A Warning header says if the answer is not certain, or has
//     redacted objects. Helm gets no release without its content.
//   - The package knows no bus, logs nothing and starts no goroutine but those that note the end of
//     a request. It does not listen.
package apiview
