// Package feed is a stand-in API server that costs next to nothing. It serves discovery, a LIST of
// N pods and a WATCH of M updates of them, as fast as the client reads or at a fixed rate. So a
// benchmark measures the clients of the API server, and not the API server.
//
// It has no store. The whole history is a function: update j gives pod History.Order(j) the
// resourceVersion first+1+j, and the bytes of a pod at a version are a template with some digits
// patched. So the server answers any LIST, including Exact ones, and a WATCH from any
// resourceVersion without stored state. A reader of the bus can compute the expected records.
//
// Not implemented are namespaced lists, selectors, gzip, and writes other than those of ConfigMaps
// and Leases, where agents keep their state. (Client and server would spend the same time on gzip
// for every contestant, and a watch does not use it.)
//
// Goroutines: those of net/http, one that releases updates while a rate is set, and one per
// listener. All of them end with Server.Run.
package feed
