package publish

import "net"

// Sending is how many calls are within nats.go: many at once only while its lock is held for long.
func (n *NATS) Sending() (sending int) {
	for _, w := range n.waiters {
		w.mu.Lock()
		if w.sending {
			sending++
		}
		w.mu.Unlock()
	}
	return sending
}

// Guard is c behind f, as publishers have their connections. carries: events have been handed over.
func Guard(f Fence, c net.Conn, carries bool) net.Conn { return newFencing(f).guard(c, carries) }

// TopicIDs reads an answer to Metadata that has topic ids.
func TopicIDs(body []byte) (cluster string, ids map[string]string, err error) {
	r, err := readTopicIDs(body)
	if err != nil {
		return "", nil, err
	}
	return r.cluster, r.topics, nil
}

// Remote is a loopback address that tests have taken for another machine's.
const Remote = "127.0.0.66"

// TakeForRemote has Remote taken for another machine's address. It is called before any test.
func TakeForRemote() {
	isLocal = func(ip net.IP) bool { return ip.IsLoopback() && ip.String() != Remote }
}
