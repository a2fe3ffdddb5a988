package encode_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// checkBySDK reads an event with the CloudEvents SDK, as a consumer does, and checks the result.
func checkBySDK(t fataler, ev *encode.Event) *event.Event {
	var got event.Event
	want := make(map[string]string)
	var data []byte
	if ev.Attributes == nil {
		if ev.ContentType != "application/cloudevents+json" || format.Lookup(ev.ContentType) != format.JSON {
			t.Fatalf("content type %s", ev.ContentType)
		}
		if !json.Valid(ev.Body) {
			t.Fatalf("not JSON: %q", ev.Body)
		}
		if err := format.JSON.Unmarshal(ev.Body, &got); err != nil {
			t.Fatalf("SDK: %v\n%q", err, ev.Body)
		}
		for name, v := range decode(t, ev.Body).(map[string]any) {
			if s, ok := v.(string); ok {
				want[name] = s
			}
		}
		var body struct{ Data json.RawMessage }
		if err := json.Unmarshal(ev.Body, &body); err != nil {
			t.Fatalf("%v", err)
		}
		data = body.Data
	} else {
		e, err := binding.ToEvent(context.Background(), (*binaryMessage)(ev))
		if err != nil {
			t.Fatalf("SDK: %v\n%q", err, ev.Attributes)
		}
		got = *e
		for _, a := range ev.Attributes {
			want[a.Name] = string(a.Value)
		}
		data = ev.Body
	}
	if err := got.Validate(); err != nil {
		t.Fatalf("SDK: %v\n%q", err, ev.Body)
	}

	attributes := map[string]string{
		"specversion":     got.SpecVersion(),
		"id":              got.ID(),
		"source":          got.Source(),
		"type":            got.Type(),
		"subject":         got.Subject(),
		"time":            got.Time().Format("2006-01-02T15:04:05.000000000Z07:00"),
		"datacontenttype": got.DataContentType(),
		"dataschema":      got.DataSchema(),
	}
	for name, v := range got.Extensions() {
		attributes[name] = v.(string)
	}
	for _, m := range []map[string]string{want, attributes} { // the SDK trims some of them
		for name, v := range m {
			m[name] = strings.TrimSpace(v)
		}
	}
	if diff := cmp.Diff(want, attributes); diff != "" {
		t.Fatalf("attributes: -sent +read\n%s", diff)
	}
	if !bytes.Equal(data, got.Data()) {
		t.Fatalf("data\nsent %s\nread %s", data, got.Data())
	}
	for name, v := range map[string][]byte{
		"id":           ev.ID,
		"source":       ev.Source,
		"type":         ev.Type,
		"partitionkey": ev.PartitionKey,
	} {
		if want[name] != strings.TrimSpace(string(v)) {
			t.Fatalf("%s is %q in the attributes, %q in the event", name, want[name], v)
		}
	}
	return &got
}

// binaryMessage is an Event in binary mode, as the SDK reads one from a bus.
type binaryMessage encode.Event

func (m *binaryMessage) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (m *binaryMessage) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m *binaryMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	v1 := spec.New().Version("1.0")
	for _, a := range m.Attributes {
		var err error
		if attribute := v1.Attribute(a.Name); attribute != nil {
			err = w.SetAttribute(attribute, string(a.Value))
		} else {
			err = w.SetExtension(a.Name, string(a.Value))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return w.SetData(bytes.NewReader(m.Body))
}

func (m *binaryMessage) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := spec.New().Version("1.0").AttributeFromKind(kind)
	if v := m.GetExtension(attribute.Name()); v != nil {
		return attribute, v
	}
	return attribute, nil
}

func (m *binaryMessage) GetExtension(name string) any {
	for _, a := range m.Attributes {
		if a.Name == name {
			return string(a.Value)
		}
	}
	return nil
}

func (m *binaryMessage) Finish(error) error { return nil }

var (
	_ binding.Message               = (*binaryMessage)(nil)
	_ binding.MessageMetadataReader = (*binaryMessage)(nil)
)
