// Package kafkanet sends requests to the brokers of a Kafka cluster. [Network] sends each to a
// given broker; [Cluster] chooses the broker by the request, for the clients of kafka-go.
// kafka-go's own Transport ignores quotas and uses connections again that are muted or dead. It
// leaves a connection with an outstanding answer in a goroutine.
//
// # Quotas
//
// A broker whose quota is exceeded answers at once, names a pause (throttle_time_ms), and reads
// nothing more from that connection until the pause has ended (KIP-219). A request on it would look
// unanswered, and one on another connection would exceed the quota further. So no request of any
// kind goes to this broker during the pause. A request's time limit begins when it is sent, after
// the pause.
//
// While a broker names pauses, and for some time after the last one, it gets one request to produce
// or to fetch at a time, in order of arrival. Otherwise all partitions would send a batch at once
// after each pause, and the next pause would be as much longer. A pause also counts the records of
// all fetches that the broker reads at the same time, those that it withholds included.
//
// A broker answers a fetch above the quota without records. Such an answer is not returned: the
// fetch is repeated after the pause. Without more, records arrive in one burst, and then none until
// the burst leaves the window of 11 s over which the broker measures. So fetches are spread: after
// each one, the next waits as long as its bytes take at the rate of the last window.
//
// # Silent paths
//
// A path may die without a word, for example with the state of a firewall. TCP needs minutes to
// detect that, and keep-alive does not probe while sent data is unacknowledged. So a request
// without an answer in time ends all connections to the broker that have not answered since it was
// sent, used or not. The next request dials.
//
// A connection that is given up is reset. Otherwise the kernel would hold its unsent data and try
// to deliver it for minutes.
//
// # Goroutines
//
// A Network starts none: the caller reads the answer. A Cluster starts one for each broker of a
// request to several, and they end before RoundTrip returns. All methods are safe for concurrent
// use.
package kafkanet
