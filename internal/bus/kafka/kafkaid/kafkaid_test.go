package kafkaid_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
)

// metadataV10 returns a response to Metadata, version 10, as Apache Kafka 4 sends it. It has one
// broker, a topic with one partition, and a topic that does not exist.
func metadataV10() []byte {
	text := "00006b63 00" + // correlation ID, no tags
		"00000000" + // throttle time
		"02 00000001 0a" + hex.EncodeToString([]byte("127.0.0.1")) + "00002384 00 00" + // brokers
		"08" + hex.EncodeToString([]byte("cluster")) + "00000001" + // cluster and controller
		"03" + // topics
		"0000 02" + hex.EncodeToString([]byte("a")) + "000102030405060708090a0b0c0d0e0f 00" +
		"02 0000 00000000 00000001 00000000 02 00000001 02 00000001 01 00" + "80000000 00" +
		"0003 02" + hex.EncodeToString([]byte("b")) + strings.Repeat("00", 16) + "00 01 80000000 00" +
		"80000000 00"
	body, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return body
}

// The text of an error names the broker and the cause, and no method of kafka-go.
func TestTheCauseOfAnErrorOfTheClient(t *testing.T) {
	c := &kafka.Client{Addr: kafka.TCP("127.0.0.1:1"), Transport: &kafka.Transport{}}
	_, err := c.Metadata(t.Context(), &kafka.MetadataRequest{})
	if err == nil || !strings.HasPrefix(err.Error(), "kafka.(*Client).Metadata: ") {
		t.Fatalf("kafka-go: %v", err)
	}
	if got := kafkaid.Cause(err); !errors.Is(got, syscall.ECONNREFUSED) || strings.Contains(got.Error(), "kafka.(") {
		t.Errorf("got %v", got)
	}
	if got := kafkaid.Cause(syscall.ECONNREFUSED); !errors.Is(got, syscall.ECONNREFUSED) {
		t.Errorf("another error became %v", got)
	}
}

func TestTopicIDs(t *testing.T) {
	body := metadataV10()
	cluster, ids, err := kafkaid.Parse(body)
	if err != nil || cluster != "cluster" {
		t.Fatalf("cluster %q, %v", cluster, err)
	}
	if diff := cmp.Diff(map[string]string{"a": "AAECAwQFBgcICQoLDA0ODw"}, ids); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for n := range body { // A truncated response is an error.
		if _, _, err := kafkaid.Parse(body[:n]); err == nil {
			t.Errorf("no error for the first %d of %d bytes", n, len(body))
		}
	}
}

func FuzzTopicIDs(f *testing.F) {
	f.Add(metadataV10())
	f.Fuzz(func(_ *testing.T, body []byte) { _, _, _ = kafkaid.Parse(body) })
}
