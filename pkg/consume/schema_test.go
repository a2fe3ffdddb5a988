package consume_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	generate "github.com/invopop/jsonschema"
	orderedmap "github.com/pb33f/ordered-map/v2"
	validate "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

var update = flag.Bool("update", false, "write the generated files")

const (
	objectSchema   = "../../docs/schema/object-v1.schema.json"
	streamSchema   = "../../docs/schema/stream-v1.schema.json"
	progressSchema = "../../docs/schema/progress-v1.schema.json"
)

// texts describes attributes (lower case) and members of data. In the progress of an agent,
// progressTexts precede.
var texts = map[string]string{
	"id":              "Names one version of one object, or one event about the stream. source and id together are unique: a second copy is a duplicate, never news. Ends in /h<n> behind the n-th restore of etcd.",
	"source":          "The cluster, as a URI reference: /kubernetes/<name>.",
	"type":            "What has happened.",
	"subject":         "The path of the object, or of the resource, at the API server.",
	"time":            "When the agent observed it.",
	"datacontenttype": "The media type of data.",
	"dataschema":      "The schema of data.",
	"cluster":         "The configured name of the cluster, else clusteruid.",
	"clusteruid":      "The uid of namespace kube-system.",
	"apiversion":      "Group and version of the object.",
	"kind":            "The kind of the object.",
	"resource":        "The resource, plural, without its group.",
	"namespace":       "The namespace of the object; left out where it has none.",
	"name":            "The name of the object. Control characters are percent-encoded.",
	"uid":             "The uid of the object.",
	"op":              "What has happened to the object: c created, u updated, d deleted, r read (existed when a snapshot was taken), e entered (began to match the selectors of a rule), l left (ceased to match them, and still exists).",
	"resourceversion": "The resourceVersion of the change.",
	"sequence":        "The resourceVersion padded with zeros to 20 digits; left out where that is not numeric. Keep the highest per uid and ignore what is not above it.",
	"partitionkey":    "The same for all events of one object, or of one scope.",
	"scope":           "What the informer watches: resource, namespaces, selectors. An event of an object has it where the scope has a selector.",
	"epoch":           "Counts the leaders, where there is leader election.",
	"traceparent":     "The W3C trace context, where there is one.",

	"deadletterreason": "Why a record among the dead letters is one: too_large, refused or encode, a colon, and the words of the bus.",

	"resourceVersion":         "The resourceVersion: of the change, at which the snapshot was taken, from which the scope is observed (scope.started), or up to which all is in the stream (scope.ended).",
	"previousResourceVersion": "The version of the object that was observed before.",
	"before":                  "The object before. null: it did not exist; absent: not known.",
	"after":                   "The object after. null: it does not exist; absent: not known.",
	"patch":                   "RFC 6902, from before to after.",
	"changedBy":               "Who has changed the object, from its managedFields.",
	"snapshot":                "The id of the snapshot.",
	"inferred":                "Found by comparing lists, not seen on a watch.",
	"redacted":                "Whether values of the object after were removed or replaced. Absent: no; of a Secret, an earlier agent did not say so.",
	"skipped":                 "How many versions of the object filters have withheld since its last event: before is the last of them. Absent: none, or, where an event about the stream lies between, not known.",
	"truncated":               "What is left out so that the bus takes the event: of before, after, patch, changedBy.",
	"dataref":                 "URI of the whole event (structured mode), where this one leaves out what is too large for the bus.",
	"objects":                 "started: objects to be read; completed: objects that were read.",
	"initial":                 "started: the agent had no position of the scope, and did not find one on the bus. If the stream has earlier events of the scope, versions in between may be missing.",
	"continued":               "scope.started: nothing is missing since an earlier observation of the scope, which had reached resourceVersion. snapshot.started: an earlier run of the agent began this snapshot, and may have sent a part of it.",
	"observedSince":           "Time at which the first of the runs began that have observed the scope without an end in between.",
	"rules":                   "The rules that take the objects of the scope, each with its filters. The first that matches an object takes it.",
	"namespaces":              "Names and patterns of namespaces; none: all.",
	"labelSelector":           "As in the Kubernetes API.",
	"fieldSelector":           "As in the Kubernetes API.",
	"operations":              "Which of created, updated and deleted are sent; none: all.",
	"where":                   "CEL expression that is true for what is sent.",
	"onError":                 "What happens if where cannot be evaluated: send or drop.",
	"noise":                   "Names of ready-made filters, which withhold changes.",
	"writer":                  "Names an agent, by what it keeps its positions in. It is the same after a restart.",
	"run":                     "Names one run of the writer: the number of the leader's term (0: there is no election), a hyphen, and the time at which it began, in milliseconds since 1970.",
	"end":                     "Why the observation of the scope has ended: deselected (no rule selects it any more), replaced (successors have its objects), removed (its resource, namespace or node was removed, and it had no object left), taken-over (another agent observes it), forgotten (an operator has said that nobody observes it). More may be added.",
	"successors":              "The scopes that have the objects of the ended scope now, if they are known.",
	"fromResourceVersion":     "The last version before the gap.",
	"toResourceVersion":       "The first version behind the gap.",
	"since":                   "Time at which the API server last sent anything before the gap.",
	"reason":                  "Why history could not be read: expired, compacted, rewound (etcd was restored: sequences begin again below, under ids that end in a higher /h<n>), selection-changed, checkpoint-lost, content-changed (no version is missing; recovered: what is stripped or redacted has changed; otherwise the API server serves known versions in another form, and a snapshot follows), forbidden, dead-letter. More may be added.",
	"deadLetter":              "dead-letter: the id of the event that is among the dead letters instead.",
	"recovered":               "Whether of each object that existed at one end of the gap all versions inside it were found.",
	"manager":                 "The name under which it was changed.",
	"operation":               "How.",
}

var progressTexts = map[string]string{
	"id":           "progress/<writer>/<run>/<number>: names one event of one run. source, clusteruid and id together are unique: a second copy is a duplicate.",
	"subject":      "/progress/<writer>.",
	"time":         "When the agent sent it.",
	"partitionkey": "The same for all events of one writer.",

	"number":     "Counts the events of the run, from 1. Ignore an event whose number is not above the highest one of the run.",
	"checkpoint": "Where the writer keeps its positions, for people.",
	"node":       "The node of an agent on a node, for people.",
	"since": "The event has all interruptions and hidden spans whose end was noted at this time or later, and those that are not over. " +
		"It also has earlier hidden spans that reach above the resourceVersion of their entry.",
	"ends":             "The run ends: this is its last event.",
	"to":               "Holds for each of scopes that has a resourceVersion and no to.",
	"etcd":             "Holds for each of scopes that has no etcd.",
	"apiServerVersion": "The version of the API server, as it says it itself. Absent: as in the event before.",
	"snapshotBegan":    "Holds for each of scopes that has a resourceVersion and no snapshotBegan.",
	"scopes":           "What the event says about scopes.",
	"resource":         "The resource, plural, with its group: deployments.apps, pods.",
	"scope":            "The name of the scope. Absent: all scopes of the resource that the run has started before the time of the event and not ended, and that no other member of scopes names.",
	"count":            "How many scopes are meant. Absent: one.",
	"resourceVersion":  "The version up to which the stream has everything before this event. Absent: nothing is claimed of the scope.",
	"history":          "The number of restores of etcd before resourceVersion. Absent: 0.",
	"interruptions":    "Spans of time in which the scope was not observed. A change inside one may have a later time.",
	"hidden":           "Spans in which filters withheld the last version of at least one object, or its deletion.",

	"scopes.to":            "The time up to which the stream has everything that the API server had sent, except in interruptions.",
	"scopes.etcd":          "Names the etcd of the resource among those of the writer; unknown: it is not known yet. Absent: as in the event before. Resources with the same name are in one etcd.",
	"scopes.snapshotBegan": "When the last snapshot of the whole scope began that the stream has from its start to its end.",

	"interruptions.why":   "Why: start (the run began), closed (a watch ended, and the next one began late), cut (a watch ended with an error), silent (the API server sent nothing for too long), blocked (the queue was full), listed (a list replaced the watch), stopped (the process stood still), stepped (the clock was set). More may be added.",
	"interruptions.from":  "The beginning.",
	"interruptions.until": "The end. Absent: it was not over.",

	"hidden.from":                 "The time of the beginning.",
	"hidden.fromResourceVersion":  "The version at the beginning.",
	"hidden.until":                "The time of the end. Absent, with untilResourceVersion: it was not over.",
	"hidden.untilResourceVersion": "The version at the end.",
}

type schema = generate.Schema

func obj(props ...any) *schema {
	s := &schema{Properties: orderedmap.New[string, *schema]()}
	for i := 0; i < len(props); i += 2 {
		s.Properties.Set(props[i].(string), props[i+1].(*schema))
	}
	return s
}

func constant(v any) *schema { return &schema{Const: v} }

func enum[T any](vs ...T) (out []any) {
	for _, v := range vs {
		out = append(out, v)
	}
	return out
}

// reflected is the schema of a Go type; it allows members that are added later.
func reflected(t *testing.T, v any, first map[string]string) *schema {
	t.Helper()
	r := &generate.Reflector{
		Anonymous:                 true,
		ExpandedStruct:            true,
		DoNotReference:            true,
		AllowAdditionalProperties: true,
	}
	s := r.Reflect(v)
	s.Version = ""
	describe(t, s, "", first)
	return s
}

// describe describes the members of the objects that are the items of a member.
func describe(t *testing.T, s *schema, of string, first map[string]string) {
	t.Helper()
	for name, p := range s.Properties.FromOldest() {
		if p == generate.TrueSchema || reflect.DeepEqual(p, &schema{}) {
			p = &schema{} // of json.RawMessage
			s.Properties.Set(name, p)
		}
		p.Description = cmp.Or(first[of+"."+name], first[name], texts[name])
		if p.Description == "" {
			t.Errorf("%s has no description", name)
		}
		if p.Items != nil && p.Items.Properties != nil {
			describe(t, p.Items, name, first)
		}
	}
}

func member(s *schema, name string) *schema {
	p, ok := s.Properties.Get(name)
	if !ok {
		panic("no member " + name)
	}
	return p
}

// attributes are the schema of the context attributes, from the fields of Event.
func attributes(t *testing.T, of consume.Event, first map[string]string, required ...string) *schema {
	t.Helper()
	s := obj("specversion", constant("1.0"))
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || v.Field(i).IsZero() {
			continue
		}
		name := strings.ToLower(f.Name)
		p := &schema{Type: "string", Description: cmp.Or(first[name], texts[name])}
		one := uint64(1)
		switch {
		case f.Type == reflect.TypeFor[time.Time]():
			p.Format = "date-time"
		case f.Type.Kind() == reflect.String:
			p.MinLength = &one
		default:
			continue
		}
		if p.Description == "" {
			t.Errorf("%s has no description", name)
		}
		s.Properties.Set(name, p)
	}
	s.Type = "object"
	s.Required = append([]string{"specversion"}, required...)
	return s
}

// allFields is an Event with all attributes but those named.
func allFields(but ...string) consume.Event {
	var e consume.Event
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported() || slices.Contains(but, f.Name):
		case f.Type.Kind() == reflect.String:
			v.Field(i).SetString("x")
		case f.Type == reflect.TypeFor[time.Time]():
			v.Field(i).Set(reflect.ValueOf(noon))
		}
	}
	return e
}

func document(title, id string, data, event *schema) *schema {
	data.Version = generate.Version
	data.ID = generate.ID(id)
	data.Title = title
	data.Description = "The data of the event. The whole event in structured mode is " + id +
		"#event. Members and attributes may be added: ignore what you do not know."
	event.Anchor = "event"
	event.Properties.Set("data", &schema{Ref: "#"})
	event.Required = append(event.Required, "data")
	member(event, "dataschema").Const = id
	member(event, "datacontenttype").Const = "application/json"
	member(event, "source").Format = "uri-reference"
	data.Definitions = generate.Definitions{"event": event}
	return data
}

func objectDocument(t *testing.T) *schema {
	t.Helper()
	data := reflected(t, consume.Data{}, nil)
	state := func() []*schema { return []*schema{{Type: "object"}, {Type: "null"}} }
	member(data, "op").Enum = enum(consume.Ops()...)
	member(data, "before").AnyOf, member(data, "after").AnyOf = state(), state()
	member(data, "truncated").Items.Enum = enum("before", "after", "patch", "changedBy")
	member(data, "dataref").Format = "uri-reference"
	patch := member(data, "patch")
	patch.Type = "array"
	patch.Items = obj("op", &schema{Enum: enum("add", "remove", "replace", "move", "copy", "test")},
		"path", &schema{Type: "string"}, "from", &schema{Type: "string"}, "value", &schema{})
	patch.Items.Type, patch.Items.Required = "object", []string{"op", "path"}
	for _, rv := range []string{"resourceVersion", "previousResourceVersion"} {
		member(data, rv).Pattern = "^[1-9][0-9]*$"
	}
	data.Required = []string{"op"} // a deletion may be without a version of its own
	// The table of the contract. truncated names the members that an oversize event omits.
	null, object := &schema{Type: "null"}, &schema{Type: "object"}
	for _, row := range []struct {
		op            consume.Op
		before, after *schema // nil: absent
		required      []string
	}{
		{consume.Created, null, object, []string{"after", "resourceVersion"}},
		{consume.Updated, object, object, []string{"after", "resourceVersion"}},
		{consume.Deleted, object, null, []string{"after"}},
		{consume.Read, generate.FalseSchema, object, []string{"after", "resourceVersion", "snapshot"}},
		{consume.Entered, object, object, []string{"after", "resourceVersion"}},
		{consume.Left, object, generate.FalseSchema, []string{"resourceVersion"}},
	} {
		then := obj("before", row.before, "after", row.after)
		then.AnyOf = []*schema{{Required: row.required}, {Required: []string{"truncated"}}}
		data.AllOf = append(data.AllOf, &schema{If: obj("op", constant(row.op)), Then: then})
	}

	event := attributes(t, allFields(), nil,
		"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "cluster", "clusteruid",
		"apiversion", "kind", "resource", "name", "uid", "op", "partitionkey")
	member(event, "id").Pattern = `^[^/]+/[^/]+/([0-9]+(/r/.+|/l)?|d)(/h[0-9]+)?$`
	member(event, "op").Enum = enum(consume.Ops()...)
	member(event, "dataref").Format = "uri-reference"
	member(event, "resourceversion").Pattern = "^[1-9][0-9]*$"
	member(event, "sequence").Pattern = "^[0-9]{20}$"
	var types []string
	for _, op := range consume.Ops() {
		typ := consume.TypePrefix + "object." + op.Word()
		types = append(types, typ)
		event.AllOf = append(event.AllOf, &schema{
			If:   obj("op", constant(op)),
			Then: obj("type", constant(typ), "data", obj("op", constant(op))),
		})
	}
	member(event, "type").Enum = enum(types...)
	return document("The event of an object", "https://kubecdc.dev/schema/object/v1", data, event)
}

func streamDocument(t *testing.T) *schema {
	t.Helper()
	data := reflected(t, consume.Stream{}, nil)
	for _, rv := range []string{"resourceVersion", "fromResourceVersion", "toResourceVersion"} {
		member(data, rv).Pattern = "^[1-9][0-9]*$"
	}
	zero := json.Number("0")
	member(data, "objects").Minimum = zero
	event := attributes(t, allFields("Namespace", "Name", "UID", "Op", "DataRef", "DeadLetterReason"), nil,
		"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "cluster", "clusteruid",
		"apiversion", "kind", "resource", "scope", "partitionkey")
	member(event, "sequence").Pattern = "^[0-9]{20}$"
	member(event, "resourceversion").Pattern = "^[1-9][0-9]*$"
	var types []consume.EventType
	for _, x := range []struct {
		typ      consume.EventType
		required []string
	}{
		{consume.TypeSnapshotStarted, []string{"snapshot", "objects"}},
		{consume.TypeSnapshotCompleted, []string{"snapshot", "objects"}},
		{consume.TypeGap, []string{"reason", "recovered"}},
		{consume.TypeScopeStarted, []string{"resourceVersion"}},
		{consume.TypeScopeEnded, []string{"end"}},
	} {
		types = append(types, x.typ)
		event.AllOf = append(event.AllOf, &schema{If: obj("type", constant(x.typ)), Then: obj("data", &schema{
			Required: x.required,
		})})
	}
	member(event, "type").Enum = enum(types...)
	return document("An event about the stream", "https://kubecdc.dev/schema/stream/v1", data, event)
}

func progressDocument(t *testing.T) *schema {
	t.Helper()
	data := reflected(t, consume.Progress{}, progressTexts)
	scopes := member(data, "scopes").Items
	for _, s := range []*schema{scopes, member(scopes, "hidden").Items} {
		for _, rv := range []string{"resourceVersion", "fromResourceVersion", "untilResourceVersion"} {
			if p, ok := s.Properties.Get(rv); ok {
				p.Pattern = "^[1-9][0-9]*$"
			}
		}
	}
	zero, one := json.Number("0"), json.Number("1")
	member(data, "number").Minimum = one
	member(scopes, "count").Minimum, member(scopes, "history").Minimum = zero, zero
	member(data, "run").Pattern = "^[0-9]+-[0-9]+$"
	event := attributes(t,
		allFields("APIVersion", "Kind", "Resource", "Namespace", "Name", "UID", "Op", "ResourceVersion", "Sequence",
			"Scope", "TraceParent", "DataRef", "DeadLetterReason"), progressTexts,
		"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "cluster", "clusteruid",
		"partitionkey")
	member(event, "id").Pattern = "^progress/[^/]+/[0-9]+-[0-9]+/[1-9][0-9]*$"
	member(event, "type").Const = consume.TypeProgress
	return document("The progress of an agent", "https://kubecdc.dev/schema/progress/v1", data, event)
}

// same compares a generated file with the one in docs; with -update it writes it.
func same(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what the types say; go test ./pkg/consume -update writes it: -there +generated\n%s", path,
			diff)
	}
}

func TestSchemasGenerated(t *testing.T) {
	for path, s := range map[string]*schema{
		objectSchema: objectDocument(t), streamSchema: streamDocument(t), progressSchema: progressDocument(t),
	} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		same(t, path, b.Bytes())
	}
}

// compiled are the schemas of data and of whole events, by the dataschema that events name.
func compiled(t *testing.T) map[string]*validate.Schema {
	t.Helper()
	c := validate.NewCompiler()
	c.AssertFormat()
	out := map[string]*validate.Schema{}
	for _, path := range []string{objectSchema, streamSchema, progressSchema} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := validate.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		id := doc.(map[string]any)["$id"].(string)
		if err := c.AddResource(id, doc); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{id, id + "#event"} {
			out[ref], err = c.Compile(ref)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func TestSchemasAcceptGolden(t *testing.T) {
	schemas := compiled(t)
	for _, r := range consumetest.Goldens(t, "structured") {
		doc, err := validate.UnmarshalJSON(bytes.NewReader(r.Body))
		if err != nil {
			t.Fatal(err)
		}
		e := doc.(map[string]any)
		id := e["dataschema"].(string)
		if err := schemas[id+"#event"].Validate(doc); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		if err := schemas[id].Validate(e["data"]); err != nil {
			t.Errorf("%s: data: %v", r.Name, err)
		}
		// Additions are allowed.
		e["tomorrow"] = 1
		e["data"].(map[string]any)["tomorrow"] = []any{}
		if err := schemas[id+"#event"].Validate(doc); err != nil {
			t.Errorf("%s, with additions: %v", r.Name, err)
		}
	}
}

func TestSchemasRefuse(t *testing.T) {
	schemas := compiled(t)
	records := map[string][]byte{}
	for _, r := range consumetest.Goldens(t, "structured") {
		records[r.Name] = r.Body
	}
	absent := struct{}{}
	for _, tc := range []struct {
		record string
		path   []string
		value  any // absent: taken out
	}{
		{"updated", []string{"id"}, absent},
		{"updated", []string{"id"}, "deployments.apps"},
		{"updated", []string{"specversion"}, "0.3"},
		{"updated", []string{"source"}, ""},
		{"updated", []string{"uid"}, absent},
		{"updated", []string{"time"}, "yesterday"},
		{"updated", []string{"op"}, "x"},
		{"updated", []string{"op"}, "c"},
		{"updated", []string{"type"}, "dev.kubecdc.object.created"},
		{"updated", []string{"type"}, "dev.kubecdc.object.moved"},
		{"updated", []string{"sequence"}, "48211"},
		{"updated", []string{"dataschema"}, "https://kubecdc.dev/schema/stream/v1"},
		{"updated", []string{"data"}, absent},
		{"updated", []string{"data"}, "{}"},
		{"updated", []string{"data", "op"}, "x"},
		{"updated", []string{"data", "op"}, absent},
		{"updated", []string{"data", "patch"}, map[string]any{}},
		{"updated", []string{"data", "patch"}, []any{map[string]any{"op": "replace"}}},
		{"updated", []string{"data", "before"}, nil},
		{"updated", []string{"data", "after"}, absent},
		{"updated", []string{"data", "resourceVersion"}, json.Number("48211")},
		{"updated", []string{"data", "changedBy"}, []any{"kubectl"}},
		{"updated", []string{"data", "inferred"}, "true"},
		{"short-updated-reference", []string{"data", "truncated"}, absent},
		{"short-updated-reference", []string{"data", "truncated"}, []any{"spec"}},
		{"short-updated-reference", []string{"data", "dataref"}, "http://[::1"},
		{"short-updated-reference", []string{"dataref"}, ""},
		{"created", []string{"data", "before"}, map[string]any{}},
		{"deleted", []string{"data", "after"}, map[string]any{}},
		{"read", []string{"data", "snapshot"}, absent},
		{"read", []string{"data", "before"}, nil},
		{"left", []string{"data", "after"}, nil},
		{"gap", []string{"scope"}, absent},
		{"gap", []string{"data", "reason"}, absent},
		{"gap", []string{"data", "since"}, "1 hour"},
		{"scope-started", []string{"type"}, "dev.kubecdc.progress"},
		{"progress", []string{"id"}, "progress/3f0a5c1e9b7d2846/7"},
		{"progress", []string{"type"}, "dev.kubecdc.gap"},
		{"progress", []string{"partitionkey"}, absent},
		{"progress", []string{"dataschema"}, "https://kubecdc.dev/schema/stream/v1"},
		{"progress", []string{"data", "writer"}, absent},
		{"progress", []string{"data", "run"}, "1795186799000"},
		{"progress", []string{"data", "number"}, json.Number("0")},
		{"progress", []string{"data", "since"}, absent},
		{"progress", []string{"data", "to"}, "today"},
		{"progress", []string{"data", "scopes"}, absent},
		{"progress", []string{"data", "scopes"}, []any{map[string]any{"scope": "pods"}}},
		{"progress", []string{"data", "scopes"}, []any{map[string]any{"resource": "pods", "resourceVersion": "07"}}},
		{"progress", []string{"data", "scopes"}, []any{map[string]any{"resource": "pods", "interruptions": []any{
			map[string]any{},
		}}}},
		{"progress", []string{"data", "scopes"}, []any{map[string]any{"resource": "pods", "hidden": []any{
			map[string]any{"from": "1"},
		}}}},
		{"snapshot-completed", []string{"data", "objects"}, json.Number("-1")},
		{"snapshot-completed", []string{"data", "snapshot"}, absent},
	} {
		doc, err := validate.UnmarshalJSON(bytes.NewReader(records[tc.record]))
		if err != nil {
			t.Fatal(err)
		}
		at, id := doc.(map[string]any), doc.(map[string]any)["dataschema"].(string)
		for _, p := range tc.path[:len(tc.path)-1] {
			at = at[p].(map[string]any)
		}
		last := tc.path[len(tc.path)-1]
		if _, there := at[last]; !there && tc.value == absent {
			t.Fatalf("%s has no %v", tc.record, tc.path)
		}
		at[last] = tc.value
		if tc.value == absent {
			delete(at, last)
		}
		if err := schemas[id+"#event"].Validate(doc); err == nil {
			t.Errorf("%s with %s = %v is accepted", tc.record, strings.Join(tc.path, "."), fmt.Sprint(tc.value))
		}
	}
}
