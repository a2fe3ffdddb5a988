package producer

import "slices"

// BuildBatch makes the record set of a request.
func BuildBatch(compression string, id int64, epoch int16, sequence int32, records ...*Record) ([]byte, error) {
	c, err := NewCodec(compression, 1)
	if err != nil {
		return nil, err
	}
	var b batch
	for range 2 { // its buffers are used again
		if err := b.build(records, c); err != nil {
			return nil, err
		}
		b.stamp(id, epoch, sequence)
	}
	return slices.Clone(b.set), nil
}

// After is the sequence that follows so many records.
func After(sequence int32, records int) int32 { return after(sequence, records) }

// Session is what names the next batch.
func (p *Producer) Session() (id int64, epoch int16, sequence int32) {
	return p.id, p.epoch, p.sequence
}

// EndEpochs makes the present epoch the last one.
func (p *Producer) EndEpochs() { p.epoch = 1<<15 - 1 }
