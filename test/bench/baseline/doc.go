// Package baseline is the program that a user would write by hand: a stock dynamic informer. Its
// handlers marshal the object before and the object after, and publish them asynchronously to
// JetStream. It avoids the mistakes that would slow it down: rate limits are off, the trees are
// marshalled directly, and thousands of records are in flight.
package baseline
