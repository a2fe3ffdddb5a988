// Package baseline is what a user would write by hand: a stock dynamic informer whose handlers marshal the object
// before and the object after, and publish them asynchronously to JetStream. Written with care, without the slips that
// would slow it down: rate limits are off, the trees are marshalled directly, and thousands of records are under way.
package baseline
