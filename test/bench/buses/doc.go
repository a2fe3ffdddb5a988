// Package buses measures what the agent's way to a bus costs beside the same client used bare: the same records with the
// same keys and headers, acknowledged in the same way, by the same server, in one run.
//
// [Bare] sends events that were encoded beforehand, as many at once as is usual for its client. [Ours] is what the agent
// does behind its queue: deltas whose objects are compressed, the encoder, the pump and the publisher, with one event at a
// time of each object. So ours has more to do, and a bound that bare has not.
//
// [Publisher] is what of it is the publisher's part: it has the encoded events, too.
//
// All run in the process of the caller, one after the other; the servers are processes of their own.
package buses
