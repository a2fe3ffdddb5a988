package fromkafka

import (
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// fromKafka reads an event by the CloudEvents Kafka binding 1.0.2. Headers differ from those of
// NATS in their prefix, they are not percent-encoded, and datacontenttype is the content-type.
func fromKafka(m *kafka.Message) (*consume.Event, error) {
	header := make(map[string][]string, len(m.Headers)+1)
	media := ""
	binary := false
	opening := false
	for _, h := range m.Headers {
		name, value := strings.ToLower(h.Key), string(h.Value)
		attribute, isAttribute := strings.CutPrefix(name, "ce_")
		switch {
		case isAttribute:
			header["ce-"+attribute] = []string{strings.ReplaceAll(value, "%", "%25")}
			binary = binary || attribute == "specversion"
		case name == "content-type":
			media = value
			header[name] = []string{value}
		case name == consume.OpeningHeader:
			opening = true
		}
	}
	if binary && media != "" {
		header["ce-datacontenttype"] = []string{strings.ReplaceAll(media, "%", "%25")}
	}
	e, err := consume.FromMessage(header, m.Value)
	if e != nil {
		e.Opening = opening
	}
	return e, err
}
