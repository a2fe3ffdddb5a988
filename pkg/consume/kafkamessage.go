package consume

import (
	"strings"

	"github.com/segmentio/kafka-go"
)

// OpeningHeader is the header of a record of Kafka that begins a new topic. Its event happened before
// the topic was created, and other topics have it from that time. Its value is "true".
const OpeningHeader = "kubecdc-opening"

// fromKafka reads an event by the CloudEvents Kafka binding 1.0.2. Headers differ from those of NATS in their prefix, they are not
// percent-encoded, and datacontenttype is the content-type.
func fromKafka(m *kafka.Message) (*Event, error) {
	header := make(map[string][]string, len(m.Headers)+1)
	media, binary, opening := "", false, false
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
		case name == OpeningHeader:
			opening = true
		}
	}
	if binary && media != "" {
		header["ce-datacontenttype"] = []string{strings.ReplaceAll(media, "%", "%25")}
	}
	e, err := FromMessage(header, m.Value)
	if e != nil {
		e.Opening = opening
	}
	return e, err
}
