// Package feed is a stand-in API server that costs next to nothing: it serves discovery, a LIST of N pods and a WATCH
// of M updates of them as fast as the client reads, or at a fixed rate, so that a benchmark measures what watches the
// API server, and not the API server.
//
// It has no store. The whole history is a function: update j gives pod History.Order(j) the resourceVersion
// first+1+j, and the bytes of a pod at a version are a template with some digits patched. So any LIST, Exact ones
// too, and a WATCH from any resourceVersion can be answered without remembering anything, and whoever reads the bus
// afterwards can compute what has to be there.
//
// What it leaves out: gzip (client and server would spend the same on it for every contestant, and the watch has
// none), namespaced lists, selectors and any write, but for ConfigMaps and Leases, where agents keep their state.
//
// Goroutines: those of net/http, one that releases updates while a rate is set, and one per listener; all of them end
// with Server.Run.
package feed
