package fromkafka_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// Records of Kafka have other headers than those of NATS, and the same events.
func TestParseGoldenOfKafka(t *testing.T) {
	for _, mode := range []string{"structured", "binary"} {
		for _, r := range consumetest.Goldens(t, mode) {
			want, err := consume.FromMessage(r.Header, r.Body)
			if err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
			m := &kafka.Message{Key: []byte("any"), Value: r.Body}
			for name, values := range r.Header {
				value, err := url.PathUnescape(values[0])
				if err != nil {
					t.Fatal(err)
				}
				if name != "ce-datacontenttype" { // it is the content type
					m.Headers = append(m.Headers, kafka.Header{
						Key:   strings.Replace(name, "ce-", "ce_", 1),
						Value: []byte(value),
					})
				}
			}
			got, err := fromkafka.FromKafka(m)
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
				continue
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(consume.Event{})); diff != "" {
				t.Errorf("%s, %s: -NATS +Kafka\n%s", r.Name, mode, diff)
			}
		}
	}
}
