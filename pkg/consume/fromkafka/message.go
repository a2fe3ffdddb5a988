package fromkafka

import (
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// fromKafka reads an event by the CloudEvents Kafka binding 1.0.2. Headers differ from those of NATS in their prefix, they are not
// percent-encoded, and datacontenttype is the content-type.
func fromKafka(m *kafka.Message) (*consume.Event, error) {
	header := make(map[string][]string, len(m.Headers)+1)
	media, binary := "", false
	for _, h := range m.Headers {
		name, value := strings.ToLower(h.Key), string(h.Value)
		if attribute, ok := strings.CutPrefix(name, "ce_"); ok {
			header["ce-"+attribute] = []string{strings.ReplaceAll(value, "%", "%25")}
			binary = binary || attribute == "specversion"
		} else if name == "content-type" {
			media = value
			header[name] = []string{value}
		}
	}
	if binary && media != "" {
		header["ce-datacontenttype"] = []string{strings.ReplaceAll(media, "%", "%25")}
	}
	return consume.FromMessage(header, m.Value)
}
