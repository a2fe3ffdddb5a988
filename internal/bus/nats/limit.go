package nats

// MaxEventBytes implements driver.Limiter. Before the first check of the stream it is the
// configured maximum.
func (b *Bus) MaxEventBytes() int {
	most := b.cfg.MaxEventBytes
	for _, limit := range []int64{b.maxPayload.Load(), b.maxMsgSize.Load()} {
		if n := int(limit) - headRoom; limit > 0 && (most == 0 || n < most) {
			most = max(n, 1)
		}
	}
	return most
}
