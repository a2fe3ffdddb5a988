package cloudevents_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/cloudevents"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// An event does not change on its way through the CloudEvents SDK.
func TestCloudEvent(t *testing.T) {
	var events []*consume.Event
	for _, mode := range []string{"structured", "binary"} {
		for _, g := range consumetest.Goldens(t, mode) {
			e, err := consume.FromMessage(g.Header, g.Body)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
	for _, want := range events {
		ce, err := cloudevents.To(want)
		if err == nil {
			err = ce.Validate()
		}
		if err != nil {
			t.Fatalf("%s: %v", want.ID, err)
		}
		got, err := cloudevents.From(ce)
		if err != nil {
			t.Fatalf("%s: %v", want.ID, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(consume.Event{})); diff != "" {
			t.Errorf("%s: -want +got\n%s", want.ID, diff)
		}
		var again *consume.Event
		text, err := got.MarshalJSON()
		if err == nil {
			again, err = consume.Parse(text)
		}
		if err != nil {
			t.Fatalf("%s: %v", want.ID, err)
		}
		if diff := cmp.Diff(want, again, cmpopts.IgnoreUnexported(consume.Event{})); diff != "" {
			t.Errorf("%s, written again: -want +got\n%s", want.ID, diff)
		}
	}
}

// From reads events that a producer made with the SDK, with extensions of any type and with data in
// base64.
func TestFromOfTheSDK(t *testing.T) {
	ce := event.New()
	ce.SetID("pods/1/7")
	ce.SetSource("/kubernetes/100%25")
	ce.SetType("dev.kubecdc.object.updated")
	ce.SetTime(time.Date(2026, 11, 20, 15, 0, 0, 123, time.UTC))
	for name, value := range map[string]string{
		"op":         "u",
		"resource":   "pods",
		"apiversion": "v1",
		"kind":       "Pod",
		"name":       "web",
		"uid":        "1",
	} {
		ce.SetExtension(name, value)
	}
	ce.SetExtension("attempt", 3)
	if err := ce.SetData(event.ApplicationJSON,
		[]byte(`{"op":"u","resourceVersion":"7","after":{"a":1}}`)); err != nil {
		t.Fatal(err)
	}
	e, err := cloudevents.From(&ce)
	if err != nil {
		t.Fatal(err)
	}
	if e.Source != "/kubernetes/100%25" || e.Extensions["attempt"] != "3" || e.Time.Nanosecond() != 123 ||
		e.Data == nil || !cmp.Equal(e.Data.After, json.RawMessage(`{"a":1}`)) {
		t.Errorf("got %+v, %+v", e, e.Data)
	}
	ce.SetType("com.example.order")
	if _, err := cloudevents.From(&ce); err == nil {
		t.Error("another producer's event is no error")
	}
}
