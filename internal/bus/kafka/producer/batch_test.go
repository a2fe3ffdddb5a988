package producer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
	"github.com/kubecdc/kubecdc/internal/encode"
)

// batch is what kafka-go's decoder, which checks the sum, reads of a record set.
type batch struct {
	*protocol.RecordBatch
	records []read
}

type read struct {
	key, value string
	null       bool // the value
	headers    string
	time       int64
}

func decode(t testing.TB, raw []byte) batch {
	t.Helper()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) != 1 {
		t.Fatalf("not one batch: %T", set.Records)
	}
	b := batch{RecordBatch: stream.Records[0].(*protocol.RecordBatch)}
	for {
		r, err := b.ReadRecord()
		if errors.Is(err, io.EOF) {
			return b
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Offset != int64(len(b.records)) {
			t.Fatalf("record %d has offset %d", len(b.records), r.Offset)
		}
		got := read{null: r.Value == nil, time: r.Time.UnixMilli()}
		for dst, src := range map[*string]protocol.Bytes{&got.key: r.Key, &got.value: r.Value} {
			if src != nil {
				all, err := protocol.ReadAll(src)
				if err != nil {
					t.Fatal(err)
				}
				*dst = string(all)
			}
		}
		var headers []string
		for _, h := range r.Headers {
			headers = append(headers, h.Key+"="+string(h.Value))
		}
		got.headers = strings.Join(headers, " ")
		b.records = append(b.records, got)
	}
}

func record(key, body string) *producer.Record {
	return &producer.Record{
		Event: &encode.Event{ContentType: "application/cloudevents+json", Body: []byte(body)},
		Key:   []byte(key),
		Time:  1_700_000_000_000,
	}
}

func TestTombstonesAndBinaryMode(t *testing.T) {
	first := record("a", strings.Repeat("abc ", 30_000))
	del := &producer.Record{
		Event: &encode.Event{
			ContentType: "application/json", Body: []byte("{}"),
			Attributes: []encode.Attribute{{Name: "id", Value: []byte("x")}, {
				Name:  "datacontenttype",
				Value: []byte("application/json"),
			}, {Name: "op", Value: []byte("d")}},
		},
		Key: []byte("a"), Time: 1_700_000_000_123, Tombstone: true,
	}
	opening := record("b", "told")
	opening.Opening = true
	for _, compression := range []string{"", "zstd", "lz4", "snappy", "gzip", "none"} {
		raw, err := producer.BuildBatch(compression, 7, 3, 1<<31-1, first, del, opening)
		if err != nil {
			t.Fatal(err)
		}
		b := decode(t, raw)
		if b.ProducerID != 7 || b.ProducerEpoch != 3 || b.BaseSequence != 1<<31-1 || len(b.records) != 4 {
			t.Fatalf("%s: %+v", compression, b)
		}
		if got := b.records[0]; got.value != string(first.Event.Body) || got.key != "a" ||
			got.headers != "content-type=application/cloudevents+json" {
			t.Errorf("%s: first record has %d bytes, headers %v", compression, len(got.value), got.headers)
		}
		if got := b.records[1]; got.headers != "content-type=application/json ce_id=x ce_op=d" ||
			got.time != 1_700_000_000_123 {
			t.Errorf("%s: %+v", compression, got)
		}
		if got := b.records[2]; !got.null || got.key != "a" || got.headers != "" {
			t.Errorf("%s: tombstone %+v", compression, got)
		}
		if got := b.records[3]; got.headers != "content-type=application/cloudevents+json kubecdc-opening=true" ||
			got.value != "told" {
			t.Errorf("%s: opening %+v", compression, got)
		}
		if most := producer.Head + first.Size() + del.Size() + opening.Size(); len(raw) > most {
			t.Errorf("%s: %d bytes, at most %d were expected", compression, len(raw), most)
		}
	}
}

// After 2^31-1 comes 0, as in DefaultRecordBatch.incrementSequence.
func TestSequencesWrap(t *testing.T) {
	for _, c := range []struct{ from, records, want int32 }{
		{0, 1, 1}, {5, 7, 12}, {1<<31 - 1, 1, 0}, {1<<31 - 2, 1, 1<<31 - 1}, {1<<31 - 3, 10, 7},
	} {
		if got := producer.After(c.from, int(c.records)); got != c.want {
			t.Errorf("%d and %d records: %d, want %d", c.from, c.records, got, c.want)
		}
	}
}

func TestUnknownCompression(t *testing.T) {
	if _, err := producer.NewCodec("br", 1); err == nil ||
		!strings.Contains(err.Error(), "must be zstd, lz4, snappy, gzip or none") {
		t.Error(err)
	}
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte("key"), []byte("body"), []byte("value"), int64(5), int32(0))
	f.Fuzz(func(t *testing.T, key, body, value []byte, at int64, sequence int32) {
		r := &producer.Record{Event: &encode.Event{Body: body, Attributes: []encode.Attribute{{
			Name:  "x",
			Value: value,
		}}}, Key: key, Time: at, Tombstone: sequence%2 == 0}
		for _, compression := range []string{"zstd", "none", "lz4"} {
			raw, err := producer.BuildBatch(compression, 1, 0, sequence, r, record("b", "1"), r)
			if err != nil {
				t.Fatal(err)
			}
			b := decode(t, raw)
			last := b.records[1+r.Count()]
			if len(b.records) != 1+2*r.Count() || last.key != string(key) || b.records[0].value != string(body) ||
				b.BaseSequence != sequence ||
				last.headers != fmt.Sprintf("content-type= ce_x=%s", value) ||
				len(raw) > producer.Head+2*r.Size()+1<<10 {
				t.Fatalf("%+v", b)
			}
		}
	})
}
