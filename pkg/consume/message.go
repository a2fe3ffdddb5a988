package consume

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

const (
	contentType     = "content-type"
	structuredType  = "application/cloudevents+json"
	attributePrefix = "ce-"

	// timeFormat is the format of the attribute time: RFC 3339 with nine digits.
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
)

// FromMessage reads an event from a message of NATS, whose header is a nats.Header: in structured
// mode (content-type application/cloudevents+json) or in binary mode (headers ce-…, percent-encoded
// as the CloudEvents NATS binding 1.0.3 has it, and the data as body). The event keeps body, which
// must not change any more.
func FromMessage(header map[string][]string, body []byte) (*Event, error) {
	media, binary := "", false
	for name, values := range header {
		switch {
		case len(values) == 0:
		case strings.EqualFold(name, contentType):
			media = values[0]
		case strings.EqualFold(name, attributePrefix+"specversion"):
			binary = true
		}
	}
	if t, _, err := mime.ParseMediaType(media); err == nil {
		switch {
		case t == structuredType:
			return Parse(body)
		case strings.HasPrefix(t, "application/cloudevents"):
			return nil, fmt.Errorf("%w: content-type is %s, want %s", ErrNotKubecdc, t, structuredType)
		}
	}
	if !binary {
		return Parse(body) // a tool or a test may have published a structured event without headers
	}
	return parseBinary(header, body)
}

func parseBinary(header map[string][]string, body []byte) (*Event, error) {
	e := &Event{data: body}
	var specversion string
	for name, values := range header {
		if len(values) == 0 || len(name) <= len(attributePrefix) ||
			!strings.EqualFold(name[:len(attributePrefix)], attributePrefix) {
			continue
		}
		name = strings.ToLower(name[len(attributePrefix):])
		value := unpercent(values[0])
		field := e.attribute([]byte(name), &specversion)
		switch {
		case field != nil:
			*field = value
		case name != "time":
			e.extend(name, value)
		default:
			if err := e.setTime(value); err != nil {
				return nil, err
			}
		}
	}
	var d rawData
	if len(body) > 0 {
		m := jsonscan.NewMembers(body)
		d.read(m)
		if err := m.End(); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
	}
	if err := e.finish(specversion, &d); err != nil {
		return nil, err
	}
	return e, nil
}

// unpercent decodes the percent-encoding of a header's value. It leaves invalid escapes unchanged.
func unpercent(s string) string {
	at := strings.IndexByte(s, '%')
	if at < 0 {
		return s
	}
	b := []byte(s[:at])
	for i := at; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, ok1 := unhex(s[i+1])
			low, ok2 := unhex(s[i+2])
			if ok1 && ok2 {
				b = append(b, high<<4|low)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// MarshalJSON returns the event in structured mode. For an event that was read, it returns the
// record's bytes, or in binary mode its attributes and data. It ignores changes of the fields. Any
// other event is written from its fields.
func (e *Event) MarshalJSON() ([]byte, error) {
	if e.raw != nil {
		return e.raw, nil
	}
	data := e.data
	var err error
	switch {
	case data != nil:
	case e.Data != nil:
		data, err = marshal(e.Data)
	case e.Stream != nil:
		data, err = marshal(e.Stream)
	case e.Progress != nil:
		data, err = marshal(e.Progress)
	}
	if err != nil {
		return nil, fmt.Errorf("marshal data of %s: %w", e.ID, err)
	}
	at := ""
	if !e.Time.IsZero() {
		at = e.Time.Format(timeFormat)
	}
	out := append(make([]byte, 0, 1024+len(data)), `{"specversion":"1.0"`...)
	put := func(name, value string) {
		if value == "" || err != nil {
			return
		}
		var quoted []byte
		quoted, err = marshal(value)
		if err == nil {
			out = append(append(append(out, `,"`...), name...), `":`...)
			out = append(out, quoted...)
		}
	}
	for _, a := range []struct{ name, value string }{
		{"id", e.ID},
		{"source", e.Source},
		{"type", string(e.Type)},
		{"subject", e.Subject},
		{"time", at},
		{"datacontenttype", e.DataContentType},
		{"dataschema", e.DataSchema},
		{"cluster", e.Cluster},
		{"clusteruid", e.ClusterUID},
		{"apiversion", e.APIVersion},
		{"kind", e.Kind},
		{"resource", e.Resource},
		{"scope", e.Scope},
		{"namespace", e.Namespace},
		{"name", e.Name},
		{"uid", e.UID},
		{"op", string(e.Op)},
		{"resourceversion", e.ResourceVersion},
		{"sequence", e.Sequence},
		{"partitionkey", e.PartitionKey},
		{"epoch", e.Epoch},
		{"traceparent", e.TraceParent},
		{"dataref", e.DataRef},
		{"deadletterreason", e.DeadLetterReason},
	} {
		put(a.name, a.value)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		put(name, e.Extensions[name])
	}
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", e.ID, err)
	}
	if len(data) > 0 {
		out = append(append(out, `,"data":`...), data...)
	}
	return append(out, '}'), nil
}

// marshal is json.Marshal without HTML escapes, so that objects stay unchanged.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
