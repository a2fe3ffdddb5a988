package consume_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"

	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

const asyncAPI = "../../docs/asyncapi.yaml"

// m is a mapping in order: name, value, name, value, …
func m(pairs ...any) yaml.MapSlice {
	var out yaml.MapSlice
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, yaml.MapItem{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func ref(to string) yaml.MapSlice { return m("$ref", to) }

var parameters = map[string]string{
	"cluster":   "The name of the cluster, or the uid of namespace kube-system.",
	"group":     "The API group, its dots as underscores; core is the core group.",
	"resource":  "The resource, plural.",
	"namespace": "The namespace; _ for objects without one.",
	"name":      "The name of the object; beyond 256 bytes its first 128, a tilde and its sha256.",
	"scope":     "The scope, as the attribute of this name; beyond 256 bytes its first 128, a tilde and its sha256.",
	"writer":    "Names an agent, by what it keeps its positions in.",
}

func channel(t *testing.T, address, title string, messages ...string) yaml.MapSlice {
	t.Helper()
	var params yaml.MapSlice
	for part := range strings.SplitSeq(address, ".") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			if parameters[name] == "" {
				t.Fatalf("no description of the placeholder %s", name)
			}
			params = append(params, yaml.MapItem{Key: name, Value: m("description", parameters[name])})
		}
	}
	var list yaml.MapSlice
	for _, name := range messages {
		list = append(list, yaml.MapItem{Key: name, Value: ref("#/components/messages/" + name)})
	}
	return m("address", address, "title", title, "parameters", params, "messages", list)
}

// binaryHeaders are the attributes of an event as headers.
func binaryHeaders(event *schema) yaml.MapSlice {
	props := m("content-type", m("type", "string", "const", "application/json"), "Nats-Msg-Id", msgID())
	var required []string
	for name, p := range event.Properties.FromOldest() {
		if name == "data" {
			continue
		}
		h := m("type", "string")
		if p.Const != nil && name == "specversion" {
			h = append(h, yaml.MapItem{Key: "const", Value: p.Const})
		}
		if p.Description != "" {
			h = append(h, yaml.MapItem{Key: "description", Value: p.Description})
		}
		props = append(props, yaml.MapItem{Key: "ce-" + name, Value: h})
		if slices.Contains(event.Required, name) {
			required = append(required, "ce-"+name)
		}
	}
	return m("type", "object", "required", append([]string{"content-type", "Nats-Msg-Id"}, required...), "properties",
		props)
}

func msgID() yaml.MapSlice {
	return m("type", "string", "minLength", 22, "maxLength", 22,
		"description",
		`The first 22 characters of base64url(sha256(source + "\n" + id)): JetStream drops a second copy within its duplicate window. Random if another record has taken that id.`)
}

func structuredHeaders() yaml.MapSlice {
	return m("type", "object", "required", []string{"content-type", "Nats-Msg-Id"}, "properties", m(
		"content-type", m("type", "string", "const", "application/cloudevents+json"), "Nats-Msg-Id", msgID()))
}

func message(
	t *testing.T, title, summary, contentType string, headers yaml.MapSlice, schema string, example any,
) yaml.MapSlice {
	t.Helper()
	return m("title", title, "summary", summary, "contentType", contentType, "headers", headers,
		"payload", m("schemaFormat", "application/schema+json;version=draft-2020-12", "schema", ref(schema)),
		"examples", []any{m("payload", example)})
}

// example is the golden event of that name, or its data.
func example(t *testing.T, name, mode string) any {
	t.Helper()
	for _, r := range consumetest.Goldens(t, mode) {
		if r.Name == name {
			var doc yaml.MapSlice
			if err := yaml.UnmarshalWithOptions(r.Body, &doc, yaml.UseOrderedMap()); err != nil {
				t.Fatal(err)
			}
			return doc
		}
	}
	t.Fatalf("no golden event %s", name)
	return nil
}

func TestAsyncAPIGenerated(t *testing.T) {
	object := objectDocument(t)
	stream := streamDocument(t)
	progress := progressDocument(t)
	doc := m(
		"asyncapi", "3.0.0",
		"info", m(
			"title", "kubecdc", "version", "1.0.0",
			"description",
			"Change data capture for Kubernetes: the changes of a cluster's objects as CloudEvents 1.0 in a JetStream. "+
				"The rules for duplicates, order and deletions that nobody has seen are in events.md. "+
				"Members, attributes and types of events may be added: ignore what you do not know.",
			"license", m("name", "Apache-2.0", "url", "https://www.apache.org/licenses/LICENSE-2.0"),
		),
		"defaultContentType", "application/cloudevents+json",
		"servers", m("nats", m("host", "localhost:4222", "protocol", "nats",
			"description",
			"NATS with JetStream. The stream is called "+fromnats.DefaultStream+
				" unless configured otherwise (bus.nats.stream.name).")),
		"channels", m(
			"objects", channel(t, subject.Default, "Events of objects", "objectStructured", "objectBinary"),
			"stream",
			channel(t, subject.Stream, "Events about the stream: snapshots", "streamStructured", "streamBinary"),
			"scope",
			channel(t, subject.Scope, "Events about the stream: starts and ends of scopes, gaps", "streamStructured",
				"streamBinary"),
			"progress", channel(t, subject.Progress, "The progress of agents", "progressStructured", "progressBinary"),
		),
		"operations", m(
			"publishObject",
			m("action", "send", "channel", ref("#/channels/objects"), "summary",
				"The agent publishes what has happened to an object."),
			"publishStream",
			m("action", "send", "channel", ref("#/channels/stream"), "summary",
				"The agent publishes that it reads all objects of a scope."),
			"publishScope",
			m("action", "send", "channel", ref("#/channels/scope"), "summary",
				"The agent publishes which scopes it observes, and what is missing."),
			"publishProgress",
			m("action", "send", "channel", ref("#/channels/progress"), "summary",
				"The agent publishes each minute how far it has come."),
		),
		"components", m("messages", m(
			"objectStructured", message(t, "An object's event, structured mode",
				"The whole CloudEvent as one JSON document (event.mode: structured, the default).",
				"application/cloudevents+json",
				structuredHeaders(), "schema/object-v1.schema.json#/$defs/event", example(t, "updated", "structured")),
			"objectBinary", message(t, "An object's event, binary mode",
				"The attributes as headers, percent-encoded (CloudEvents NATS binding 1.0.3), the data as body (event.mode: binary).",
				"application/json",
				binaryHeaders(object.Definitions["event"]), "schema/object-v1.schema.json",
				example(t, "updated", "binary")),
			"streamStructured", message(t, "An event about the stream, structured mode",
				"The whole CloudEvent as one JSON document.", "application/cloudevents+json",
				structuredHeaders(), "schema/stream-v1.schema.json#/$defs/event", example(t, "gap", "structured")),
			"streamBinary", message(t, "An event about the stream, binary mode",
				"The attributes as headers, percent-encoded, the data as body.", "application/json",
				binaryHeaders(stream.Definitions["event"]), "schema/stream-v1.schema.json",
				example(t, "gap", "binary")),
			"progressStructured", message(t, "The progress of an agent, structured mode",
				"The whole CloudEvent as one JSON document.", "application/cloudevents+json",
				structuredHeaders(), "schema/progress-v1.schema.json#/$defs/event",
				example(t, "progress", "structured")),
			"progressBinary", message(t, "The progress of an agent, binary mode",
				"The attributes as headers, percent-encoded, the data as body.", "application/json",
				binaryHeaders(progress.Definitions["event"]), "schema/progress-v1.schema.json",
				example(t, "progress", "binary")),
		)),
	)
	var b bytes.Buffer
	b.WriteString("# Generated by: go test ./pkg/consume -run AsyncAPI -update\n")
	if err := yaml.NewEncoder(&b, yaml.Indent(2), yaml.IndentSequence(true)).Encode(doc); err != nil {
		t.Fatal(err)
	}
	// The encoder leaves digits with zeros in front without quotes, which other parsers take for a
	// number.
	written := regexp.MustCompile(`(?m): (0[0-9]+)$`).ReplaceAll(b.Bytes(), []byte(`: "$1"`))
	same(t, asyncAPI, written)

	// The subjects are those that the publisher makes, and every header that is sent is described.
	subjects, err := subject.New("", "c")
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range []string{subject.Default, subject.Stream, subject.Scope, subject.Progress} {
		tokens := strings.Split(strings.Replace(address, "{cluster}", "c", 1), ".")
		for j, token := range tokens {
			if strings.HasPrefix(token, "{") {
				tokens[j] = "*"
			}
		}
		if got := strings.Join(tokens, "."); got != subjects.Patterns()[i] {
			t.Errorf("channel %s, subject %s", got, subjects.Patterns()[i])
		}
	}
	for _, r := range consumetest.Goldens(t, "binary") {
		described := object
		switch dataSchema := r.Header["ce-dataschema"][0]; {
		case strings.Contains(dataSchema, "/stream/"):
			described = stream
		case strings.Contains(dataSchema, "/progress/"):
			described = progress
		}
		for name := range r.Header {
			attribute, isAttribute := strings.CutPrefix(name, "ce-")
			if _, ok := described.Definitions["event"].Properties.Get(attribute); isAttribute && !ok {
				t.Errorf("%s: header %s is not described", r.Name, name)
			}
		}
	}
	var check struct {
		Channels   map[string]json.RawMessage `json:"channels"`
		Operations map[string]struct {
			Channel struct {
				Ref string `json:"$ref"`
			} `json:"channel"`
		} `json:"operations"`
	}
	raw, err := yaml.YAMLToJSON(written)
	if err == nil {
		err = json.Unmarshal(raw, &check)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range check.Operations {
		if check.Channels[strings.TrimPrefix(o.Channel.Ref, "#/channels/")] == nil {
			t.Errorf("operation %s: no channel %s", name, o.Channel.Ref)
		}
	}
}
