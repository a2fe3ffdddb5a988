// Package etcds finds out which resources share an etcd. It makes no requests: it says which lists
// to ask for, and takes their resourceVersions.
//
// A list without a resourceVersion has the last one of its etcd. So three lists A, B, A of two
// resources of one etcd have versions that do not decrease. Three such lists are a sandwich: A is
// the outer resource, B the inner one. One sandwich whose inner version is outside the range of its
// outer ones proves two etcds. Nothing proves that there is one: two etcds may have such versions
// by chance. They count as one after three sandwiches, a minute apart, between which both versions
// have risen. Until then it is not known.
//
//	resource ──▶ unknown ──three sandwiches──▶ the etcd of a representative
//	                │                                   │
//	                └──outside of all etcds──▶ an etcd of its own, as its representative
//
// Each etcd has one representative, which is the outer resource. So the number of lists grows with
// the resources and the few etcds, not with the pairs. One sandwich has up to maxInner inner
// resources.
//
// Custom resources count as one resource: an API server keeps all of them in one etcd, that of
// --etcd-servers. So the number of lists does not depend on the number of custom resources.
//
// An aggregated resource is alone in its etcd: its API server may have none, and give versions of
// another kind.
//
// A changed history number means that an etcd was restored. More may have changed with it, so all
// comparisons start over. They are repeated after the start of a run, at intervals of 4 minutes to
// an hour: an API server may have been started with other etcds.
package etcds
