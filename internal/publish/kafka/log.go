package kafka

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// takes reports whether events of objects of a resource in a namespace ("": any) may go to a topic.
func (b *Bus) takes(topic string, r *object.Resource, namespace string) bool {
	if namespace != "" && b.topicNames.Varies() {
		ref := object.NewRef(r, namespace, "", "")
		return topic == string(b.topicNames.Append(nil, &object.Delta{Ref: ref}))
	}
	return b.topicNames.Match(topic, r)
}

// lookAtLogsSoon asks for a look at the identity of topics. It does not wait.
func (b *Bus) lookAtLogsSoon() {
	select {
	case b.logsDue <- struct{}{}:
	default:
	}
}

// watchLogs reads the identity of topics when it is asked to, and every minute, until ctx ends.
func (b *Bus) watchLogs(ctx context.Context) error {
	wait, told := publish.LogAge, false // told: the log has why the identity cannot be read
	for {
		timer := time.NewTimer(wait)
		select {
		case <-b.logsDue:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
		wait = publish.LogAge
		again, err := b.lookAtLogs(ctx)
		if ctx.Err() != nil {
			return nil
		}
		b.logs.Failed(err)
		if err != nil && !told {
			b.log.Warn("the identity of topics cannot be read: a topic that is deleted and created again may not be noticed", "err", err)
		}
		told = err != nil
		if again {
			b.refresh() // the leaders of partitions too: a look has to be confirmed by another broker if leaders have changed
			wait = publish.LogPause
		}
		if publish.Sleep(ctx, publish.LogPause) != nil {
			return nil
		}
	}
}

// lookAtLogs reads the identity of all topics that have taken events, and where they end. It reports whether another look is
// needed soon. An error says what could not be read; nothing is concluded from that.
func (b *Bus) lookAtLogs(ctx context.Context) (again bool, err error) {
	v := b.view()
	var looks []publish.Look
	for _, name := range b.logs.Names() {
		looks = append(looks, b.logs.Look(name))
	}
	if len(looks) == 0 || len(v.brokers) == 0 {
		return false, nil
	}
	res, err := b.topicIDs(ctx, v, looks)
	if err != nil {
		return false, err
	}
	ends, errs := b.topicEnds(ctx, v, looks)
	for _, l := range looks {
		id, ok := res.Topics[l.Name]
		if !ok {
			continue // it is not there, or may not be described
		}
		again = b.logs.Found(l, res.Cluster, id, ends[l.Name]) || again
	}
	if res.old {
		errs = append(errs, errors.New("the brokers tell no topic ids: Kafka 2.8 or later does"))
	}
	return again, errors.Join(errs...)
}

// identities are cluster and topics as a broker tells them.
type identities struct {
	Cluster string
	Topics  map[string]string // id by name, "": not told
	old     bool              // the broker knows no topic ids
}

// topicIDs asks brokers until one answers.
func (b *Bus) topicIDs(ctx context.Context, v *view, looks []publish.Look) (*identities, error) {
	names := make([]string, len(looks))
	for i, l := range looks {
		names[i] = l.Name
	}
	var errs []error
	for _, addr := range v.brokers {
		within, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
		r, err := b.net.RoundTrip(within, addr, &topicIDRequest{names: names})
		cancel()
		if err == nil {
			if res, ok := r.(*topicIDResponse); ok && !res.identities.old {
				return &res.identities, nil
			}
			break // too old: what else it tells is in the metadata that kafka-go knows
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	if len(errs) == len(v.brokers) {
		return nil, fmt.Errorf("ask for topic ids: %w", errors.Join(errs...))
	}
	res, err := b.metadata(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("ask for the cluster's id: %w", err)
	}
	out := &identities{Cluster: res.ClusterID, Topics: map[string]string{}, old: true}
	for i := range res.Topics {
		if res.Topics[i].Error == nil {
			out.Topics[res.Topics[i].Name] = ""
		}
	}
	return out, nil
}

// topicEnds asks the leaders of partitions where these end. The end of a partition that could not be read is UnknownEnd.
func (b *Bus) topicEnds(ctx context.Context, v *view, looks []publish.Look) (ends map[string][]uint64, errs []error) {
	ends = map[string][]uint64{}
	requests := map[net.Addr]map[string][]listoffsets.RequestPartition{} // by leader and topic
	for _, l := range looks {
		leaders, ok := v.leaders[l.Name]
		if !ok {
			continue // not looked up yet
		}
		all := make([]uint64, len(leaders)) // a partition beyond them has lost all of its records
		for i, leader := range leaders {
			all[i] = publish.UnknownEnd
			if i >= len(l.Acked) || l.Acked[i] == 0 || leader == nil {
				continue
			}
			if requests[leader] == nil {
				requests[leader] = map[string][]listoffsets.RequestPartition{}
			}
			requests[leader][l.Name] = append(requests[leader][l.Name],
				listoffsets.RequestPartition{Partition: int32(i), CurrentLeaderEpoch: -1, Timestamp: kafka.LastOffset})
		}
		ends[l.Name] = all
	}
	for leader, topics := range requests {
		if err := b.askEnds(ctx, leader, topics, ends); err != nil {
			errs = append(errs, fmt.Errorf("ask where partitions end: %w", err))
		}
	}
	return ends, errs
}

// askEnds asks one leader where partitions end. Client.ListOffsets of kafka-go does not do: what a broker leaves unanswered ends at 0 there.
func (b *Bus) askEnds(ctx context.Context, leader net.Addr, topics map[string][]listoffsets.RequestPartition, ends map[string][]uint64) error {
	req := &listoffsets.Request{ReplicaID: -1}
	for topic, partitions := range topics {
		req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: topic, Partitions: partitions})
	}
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	r, err := b.net.RoundTrip(ctx, leader, req)
	if err != nil {
		return err
	}
	res, ok := r.(*listoffsets.Response)
	if !ok {
		return nil
	}
	for i := range res.Topics {
		all := ends[res.Topics[i].Topic]
		for _, p := range res.Topics[i].Partitions {
			// A new leader that does not know its end yet says so with an error (KIP-207).
			if p.ErrorCode == 0 && p.Offset >= 0 && int(p.Partition) < len(all) {
				all[p.Partition] = uint64(p.Offset)
			}
		}
	}
	return nil
}

// tailOf is the end of a partition. Dead letters are no events of a scope: what becomes of them is not followed.
func (b *Bus) tailOf(topic string, partition int) *publish.Tail {
	if topic == b.deadTopic {
		return &publish.Tail{}
	}
	return b.logs.Tail(topic, partition)
}

// metadataVersions is where a connection keeps the highest version of Metadata that the broker knows: kafka-go ends at version 8.
const metadataVersions protocol.ApiKey = math.MaxInt8

// topicIDVersion is the first version of Metadata with topic ids (KIP-516).
const topicIDVersion = 10

// topicIDRequest is a request Metadata of topicIDVersion, which kafka-go does not know.
type topicIDRequest struct {
	names     []string
	supported bool
}

// topicIDResponse is its answer.
type topicIDResponse struct{ identities }

// ApiKey implements protocol.Message.
func (*topicIDRequest) ApiKey() protocol.ApiKey { return protocol.Metadata } //nolint:revive,staticcheck // the name is that of the interface

// ApiKey implements protocol.Message.
func (*topicIDResponse) ApiKey() protocol.ApiKey { return protocol.Metadata } //nolint:revive,staticcheck // the name is that of the interface

// Required implements protocol.RawExchanger.
func (r *topicIDRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.supported = versions[metadataVersions] >= topicIDVersion
	return true
}

// correlation is the number of the request, the only one that is on its connection.
const correlation = 0x6b63

// RawExchange implements protocol.RawExchanger.
func (r *topicIDRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if !r.supported {
		return &topicIDResponse{identities{old: true}}, nil
	}
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(protocol.Metadata))
	b = binary.BigEndian.AppendUint16(b, topicIDVersion)
	b = binary.BigEndian.AppendUint32(b, correlation)
	b = binary.BigEndian.AppendUint16(b, uint16(len(clientID)))
	b = append(b, clientID...)
	b = append(b, 0) // tagged fields of the header: none
	b = binary.AppendUvarint(b, uint64(len(r.names))+1)
	for _, name := range r.names {
		b = append(b, make([]byte, 16)...) // the topic is named, not identified
		b = binary.AppendUvarint(b, uint64(len(name))+1)
		b = append(b, name...)
		b = append(b, 0)
	}
	b = append(b, 0, 0, 0, 0) // create no topics, tell no permissions of cluster and topics; no tagged fields
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := rw.Write(b); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(rw, size[:]); err != nil {
		return nil, err
	}
	const largest = 64 << 20
	n := binary.BigEndian.Uint32(size[:])
	if n > largest {
		return nil, errNotKafka
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(rw, body); err != nil {
		return nil, err
	}
	return readTopicIDs(body)
}

// readTopicIDs reads an answer to Metadata of topicIDVersion.
func readTopicIDs(body []byte) (*topicIDResponse, error) {
	d := kafkaDecoder{rest: body}
	if d.int32() != correlation {
		return nil, errors.New("the broker's answer is to another request")
	}
	d.tags()
	d.skip(4) // throttle time
	for range d.array() {
		d.skip(4)
		d.text()
		d.skip(4)
		d.text()
		d.tags()
	}
	res := &topicIDResponse{identities{Cluster: d.text(), Topics: map[string]string{}}}
	d.skip(4) // controller
	for range d.array() {
		code := int16(d.int32At(2))
		name := d.text()
		id := d.take(16)
		d.skip(1)
		for range d.array() {
			d.skip(2 + 4 + 4 + 4)
			for range 3 { // replicas: all, in sync, offline
				d.skip(4 * d.array())
			}
			d.tags()
		}
		d.skip(4)
		d.tags()
		if code == 0 || code == int16(kafka.LeaderNotAvailable) {
			res.Topics[name] = topicID(id)
		}
	}
	d.skip(4)
	d.tags()
	if d.short {
		return nil, errors.New("the broker's answer is cut short")
	}
	return res, nil
}

// topicID is an id as Kafka's tools print it, "" for none.
func topicID(id []byte) string {
	if len(id) != 16 || !slices.ContainsFunc(id, func(b byte) bool { return b != 0 }) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id)
}

// kafkaDecoder reads the primitives of Kafka's protocol. After the end it returns zeros, and short is set.
type kafkaDecoder struct {
	rest  []byte
	short bool
}

func (d *kafkaDecoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.rest, d.short = nil, true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *kafkaDecoder) skip(n int) { d.take(n) }

func (d *kafkaDecoder) int32() int32 { return d.int32At(4) }

// int32At reads a big-endian number of n bytes.
func (d *kafkaDecoder) int32At(n int) int32 {
	v := uint32(0)
	for _, b := range d.take(n) {
		v = v<<8 | uint32(b)
	}
	return int32(v)
}

func (d *kafkaDecoder) uvarint() int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > math.MaxInt32 {
		d.rest, d.short = nil, true
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

// array is the number of elements of a compact array. No element takes less than a byte.
func (d *kafkaDecoder) array() int {
	n := max(d.uvarint()-1, 0)
	if n > len(d.rest) {
		d.rest, d.short = nil, true
		return 0
	}
	return n
}

// text is a compact string, "" for null.
func (d *kafkaDecoder) text() string { return string(d.take(max(d.uvarint()-1, 0))) }

// tags skips tagged fields.
func (d *kafkaDecoder) tags() {
	for range d.uvarint() {
		if d.uvarint(); d.short {
			return
		}
		d.skip(d.uvarint())
	}
}
