// Package cloudevents converts events between pkg/consume and the CloudEvents SDK.
package cloudevents

import (
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// prefix begins the headers of consume.FromMessage that have attributes.
const prefix = "ce-"

// From returns the event that a program built on the CloudEvents SDK has received, in whichever
// mode and over whichever protocol. The event keeps the SDK's data, which must not be changed any
// more.
func From(ce *event.Event) (*consume.Event, error) {
	header := map[string][]string{prefix + "specversion": {ce.SpecVersion()}}
	put := func(name, value string) {
		if value != "" {
			header[prefix+name] = []string{strings.ReplaceAll(value, "%", "%25")}
		}
	}
	put("id", ce.ID())
	put("source", ce.Source())
	put("type", ce.Type())
	put("subject", ce.Subject())
	put("datacontenttype", ce.DataContentType())
	put("dataschema", ce.DataSchema())
	if t := ce.Time(); !t.IsZero() {
		put("time", t.Format(time.RFC3339Nano))
	}
	for name, value := range ce.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", name, ce.ID(), err)
		}
		put(name, text)
	}
	return consume.FromMessage(header, ce.Data())
}

// To returns the event as the CloudEvents SDK has it.
func To(e *consume.Event) (*event.Event, error) {
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
