package consume

import (
	"fmt"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// FromCloudEvent returns the event that a program built on the CloudEvents SDK has received, in whichever mode and over whichever protocol. The
// event keeps the SDK's data, which must not be changed any more.
func FromCloudEvent(ce *event.Event) (*Event, error) {
	header := map[string][]string{}
	put := func(name, value string) {
		if value != "" {
			header[attributePrefix+name] = []string{strings.ReplaceAll(value, "%", "%25")}
		}
	}
	put("specversion", ce.SpecVersion())
	put("id", ce.ID())
	put("source", ce.Source())
	put("type", ce.Type())
	put("subject", ce.Subject())
	put("datacontenttype", ce.DataContentType())
	put("dataschema", ce.DataSchema())
	if t := ce.Time(); !t.IsZero() {
		put("time", t.Format(timeFormat))
	}
	for name, value := range ce.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", name, ce.ID(), err)
		}
		put(name, text)
	}
	return parseBinary(header, ce.Data())
}

// CloudEvent returns the event as the CloudEvents SDK has it.
func (e *Event) CloudEvent() (*event.Event, error) {
	record, err := e.MarshalJSON()
	if err != nil {
		return nil, err
	}
	ce := new(event.Event)
	if err := ce.UnmarshalJSON(record); err != nil {
		return nil, fmt.Errorf("convert %s: %w", e.ID, err)
	}
	return ce, nil
}
