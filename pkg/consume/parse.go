package consume

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// kind is the kind of an event, by its type.
type kind int

const (
	kindUnknown kind = iota // of a later version
	kindObject
	kindStream
	kindProgress
)

func kindOf(typ EventType) kind {
	switch typ {
	case TypeSnapshotStarted, TypeSnapshotCompleted, TypeGap, TypeScopeStarted, TypeScopeEnded:
		return kindStream
	case TypeProgress:
		return kindProgress
	}
	word, ok := strings.CutPrefix(string(typ), object.ObjectTypePrefix)
	if ok && object.IsWord(word) {
		return kindObject
	}
	return kindUnknown
}

// Parse reads an event from a record in structured mode: the CloudEvent as one JSON document. The
// event keeps record, which must not change any more.
//
// JSON is checked as strictly as by encoding/json. Unknown attributes, members and types of events
// are not errors, because later versions may add them.
func Parse(record []byte) (*Event, error) {
	e := &Event{raw: record}
	var specversion string
	var d rawData
	m := jsonscan.NewMembers(record)
	if !m.Enter('{') {
		m.Value()
		if err := m.End(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: the record is not a JSON object", ErrNotKubecdc)
	}
	var wrong error // about the first attribute of a wrong type; errors of the JSON take precedence
	for name, ok := m.Next(); ok; name, ok = m.Next() {
		if string(name) == "data" {
			d.read(m)
			continue
		}
		if err := e.set(name, m.Value(), &specversion); err != nil && wrong == nil {
			wrong = err
		}
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	if err := e.finish(specversion, &d); err != nil {
		return nil, err
	}
	return e, nil
}

// set sets an attribute to its JSON. null means that it is absent. Extensions may also be numbers
// and booleans (JSON event format 1.0, section 2.2).
func (e *Event) set(name, value []byte, specversion *string) error {
	text, ok := "", true
	if !null(value) {
		text, ok = jsonscan.Text(value)
		if !ok {
			text = string(value)
		}
	}
	switch field := e.attribute(name, specversion); {
	case field != nil && ok:
		*field = text
	case string(name) == "time" && ok:
		return e.setTime(text)
	case field != nil, string(name) == "time":
		return fmt.Errorf("attribute %s is not a string", name)
	case !ok && (value[0] == '{' || value[0] == '['):
		return fmt.Errorf("attribute %s is neither a string nor a number nor a boolean", name)
	default:
		e.extend(string(name), text)
	}
	return nil
}

func (e *Event) setTime(text string) (err error) {
	if text == "" {
		e.Time = time.Time{}
		return nil
	}
	e.Time, err = time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("attribute time is not an RFC 3339 time: %q", text)
	}
	return nil
}

// extend keeps an unknown attribute.
func (e *Event) extend(name, value string) {
	if value == "" {
		delete(e.Extensions, name) // the last of duplicates counts
		return
	}
	if e.Extensions == nil {
		e.Extensions = map[string]string{}
	}
	e.Extensions[name] = value
}

// attribute returns the field of an attribute, nil if it is unknown or the time.
func (e *Event) attribute(name []byte, specversion *string) *string {
	switch string(name) {
	case "specversion":
		return specversion
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "type":
		return (*string)(&e.Type)
	case "subject":
		return &e.Subject
	case "datacontenttype":
		return &e.DataContentType
	case "dataschema":
		return &e.DataSchema
	case "cluster":
		return &e.Cluster
	case "clusteruid":
		return &e.ClusterUID
	case "apiversion":
		return &e.APIVersion
	case "kind":
		return &e.Kind
	case "resource":
		return &e.Resource
	case "namespace":
		return &e.Namespace
	case "name":
		return &e.Name
	case "uid":
		return &e.UID
	case "op":
		return (*string)(&e.Op)
	case "resourceversion":
		return &e.ResourceVersion
	case "sequence":
		return &e.Sequence
	case "partitionkey":
		return &e.PartitionKey
	case "scope":
		return &e.Scope
	case "epoch":
		return &e.Epoch
	case "traceparent":
		return &e.TraceParent
	case "dataref":
		return &e.DataRef
	case "deadletterreason":
		return &e.DeadLetterReason
	}
	return nil
}

// finish checks that e is an event of kubecdc, and reads its data by its type.
func (e *Event) finish(specversion string, d *rawData) error {
	if err := e.checkContext(specversion); err != nil {
		return err
	}
	k := kindOf(e.Type)
	if k == kindUnknown || e.IsFormerProgress() {
		return nil
	}
	if missing := e.missing(k, d); len(missing) > 0 {
		return fmt.Errorf("%w: %s %s has no %s", ErrNotKubecdc, e.Type, e.ID, strings.Join(missing, ", "))
	}
	var err error
	switch k {
	case kindObject:
		e.Data, err = d.data()
	case kindStream:
		e.Stream, err = d.stream()
	case kindProgress:
		e.Progress, err = d.parseProgress()
	case kindUnknown:
	}
	if err != nil {
		return fmt.Errorf("%s %s: data.%w", e.Type, e.ID, err)
	}
	return nil
}

// checkContext checks the attributes that each event has.
func (e *Event) checkContext(specversion string) error {
	var missing absent
	missing.unless("specversion", specversion)
	missing.unless("id", e.ID)
	missing.unless("source", e.Source)
	missing.unless("type", string(e.Type))
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%w: no CloudEvent, it has no %s", ErrNotKubecdc, strings.Join(missing, ", "))
	case specversion != "1.0":
		return fmt.Errorf("%w: specversion is %q, want 1.0", ErrNotKubecdc, specversion)
	case !strings.HasPrefix(string(e.Type), TypePrefix):
		return fmt.Errorf("%w: its type is %q, want %s…", ErrNotKubecdc, e.Type, TypePrefix)
	}
	return nil
}

// missing returns the names of what an event of this kind must have, and e does not.
func (e *Event) missing(k kind, d *rawData) []string {
	var missing absent
	if k != kindProgress {
		missing.unless("apiversion", e.APIVersion)
		missing.unless("resource", e.Resource)
	}
	switch k {
	case kindObject:
		missing.unless("name", e.Name)
		missing.unless("uid", e.UID)
		missing.unless("op", string(e.Op))
	case kindStream:
		missing.unless("scope", e.Scope)
	case kindProgress:
		if d.object {
			missing.unless("data.writer", valueOf(d.writer))
			missing.unless("data.run", valueOf(d.run))
		}
	case kindUnknown:
	}
	if !d.object {
		missing = append(missing, "data")
	}
	return missing
}

// absent has names of what an event lacks.
type absent []string

func (a *absent) unless(name, value string) {
	if value == "" {
		*a = append(*a, name)
	}
}

// rawData are the members of data as written in the record. Their meaning depends on the type,
// which may follow them.
type rawData struct {
	object bool // data is a JSON object

	op, resourceVersion, previousResourceVersion, before, after, patch, changedBy, snapshot        []byte
	inferred, redacted, skipped, truncated, dataref                                                []byte
	objects, fromResourceVersion, toResourceVersion, since, reason, deadLetter, recovered, initial []byte
	continued, observedSince, rules, writer, run, end, successors                                  []byte
	number, checkpoint, node, apiServerVersion, to, snapshotBegan, etcd, ends, scopes              []byte
}

// read reads the value at m.
func (d *rawData) read(m *jsonscan.Members) {
	*d = rawData{} // the last of duplicates counts
	d.object = m.Enter('{')
	if !d.object {
		m.Value()
		return
	}
	var unknown []byte
	for name, ok := m.Next(); ok; name, ok = m.Next() {
		field := d.member(name)
		if field == nil {
			field = &unknown
		}
		*field = m.Value()
	}
}

func (d *rawData) member(name []byte) *[]byte {
	switch string(name) {
	case "op":
		return &d.op
	case "resourceVersion":
		return &d.resourceVersion
	case "previousResourceVersion":
		return &d.previousResourceVersion
	case "before":
		return &d.before
	case "after":
		return &d.after
	case "patch":
		return &d.patch
	case "changedBy":
		return &d.changedBy
	case "snapshot":
		return &d.snapshot
	case "inferred":
		return &d.inferred
	case "redacted":
		return &d.redacted
	case "skipped":
		return &d.skipped
	case "truncated":
		return &d.truncated
	case "dataref":
		return &d.dataref
	case "objects":
		return &d.objects
	case "fromResourceVersion":
		return &d.fromResourceVersion
	case "toResourceVersion":
		return &d.toResourceVersion
	case "since":
		return &d.since
	case "reason":
		return &d.reason
	case "deadLetter":
		return &d.deadLetter
	case "recovered":
		return &d.recovered
	case "initial":
		return &d.initial
	case "continued":
		return &d.continued
	case "observedSince":
		return &d.observedSince
	case "rules":
		return &d.rules
	case "writer":
		return &d.writer
	case "run":
		return &d.run
	case "end":
		return &d.end
	case "successors":
		return &d.successors
	case "number":
		return &d.number
	case "checkpoint":
		return &d.checkpoint
	case "node":
		return &d.node
	case "to":
		return &d.to
	case "etcd":
		return &d.etcd
	case "apiServerVersion":
		return &d.apiServerVersion
	case "snapshotBegan":
		return &d.snapshotBegan
	case "ends":
		return &d.ends
	case "scopes":
		return &d.scopes
	}
	return nil
}

// valueOf returns "" for null and for an empty string.
func valueOf(raw []byte) string {
	if null(raw) {
		return ""
	}
	return strings.Trim(string(raw), `"`)
}

// decoder decodes members into Go values. It keeps the first error.
type decoder struct{ err error }

func (d *decoder) wrong(name, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s is not %s", name, want)
	}
}

func null(raw []byte) bool { return len(raw) == 0 || raw[0] == 'n' }

func (d *decoder) text(name string, raw []byte) string {
	if null(raw) {
		return ""
	}
	s, ok := jsonscan.Text(raw)
	if !ok {
		d.wrong(name, "a string")
	}
	return s
}

func (d *decoder) boolean(name string, raw []byte) bool {
	if !null(raw) && raw[0] != 't' && raw[0] != 'f' {
		d.wrong(name, "a boolean")
	}
	return len(raw) > 0 && raw[0] == 't'
}

func (d *decoder) number(name string, raw []byte) int {
	if null(raw) {
		return 0
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		d.wrong(name, "an integer")
	}
	return n
}

func (d *decoder) time(name string, raw []byte) time.Time {
	s := d.text(name, raw)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		d.wrong(name, "an RFC 3339 time")
	}
	return t
}

// either returns the raw value of a member that is null or begins with open.
func (d *decoder) either(name string, raw []byte, open byte, want string) json.RawMessage {
	if !null(raw) && raw[0] != open {
		d.wrong(name, want)
	}
	return raw
}

func (d *rawData) data() (*Data, error) {
	var dec decoder
	out := &Data{
		Op:                      Op(dec.text("op", d.op)),
		ResourceVersion:         dec.text("resourceVersion", d.resourceVersion),
		PreviousResourceVersion: dec.text("previousResourceVersion", d.previousResourceVersion),
		Before:                  dec.either("before", d.before, '{', "an object"),
		After:                   dec.either("after", d.after, '{', "an object"),
		ChangedBy:               dec.changes("changedBy", d.changedBy),
		Snapshot:                dec.text("snapshot", d.snapshot),
		Inferred:                dec.boolean("inferred", d.inferred),
		Skipped:                 dec.number("skipped", d.skipped),
		DataRef:                 dec.text("dataref", d.dataref),
	}
	if !null(d.patch) {
		out.Patch = dec.either("patch", d.patch, '[', "an array")
	}
	out.Truncated = dec.list("truncated", d.truncated)
	if !null(d.redacted) {
		out.Redacted = new(dec.boolean("redacted", d.redacted))
	}
	return out, dec.err
}

func (d *decoder) list(name string, raw []byte) (out []string) {
	if !null(raw) && json.Unmarshal(raw, &out) != nil {
		d.wrong(name, "an array of strings")
	}
	return out
}

func (d *decoder) rules(name string, raw []byte) (out []Rule) {
	if !null(raw) && json.Unmarshal(raw, &out) != nil {
		d.wrong(name, "an array of rules")
	}
	return out
}

func (d *decoder) changes(name string, raw []byte) []Change {
	if null(raw) {
		return nil
	}
	m := jsonscan.NewMembers(raw) // the syntax has been checked
	if !m.Enter('[') {
		d.wrong(name, "an array")
		return nil
	}
	var out []Change
	for m.NextElement() {
		if !m.Enter('{') {
			d.wrong(name, "an array of objects")
			return nil
		}
		var c Change
		for member, ok := m.Next(); ok; member, ok = m.Next() {
			switch string(member) {
			case "manager":
				c.Manager = d.text(name+".manager", m.Value())
			case "operation":
				c.Operation = d.text(name+".operation", m.Value())
			case "time":
				c.Time = d.time(name+".time", m.Value())
			default:
				m.Value()
			}
		}
		out = append(out, c)
	}
	return out
}

func (d *rawData) stream() (*Stream, error) {
	var dec decoder
	return &Stream{
		Snapshot:            dec.text("snapshot", d.snapshot),
		ResourceVersion:     dec.text("resourceVersion", d.resourceVersion),
		Objects:             dec.number("objects", d.objects),
		FromResourceVersion: dec.text("fromResourceVersion", d.fromResourceVersion),
		ToResourceVersion:   dec.text("toResourceVersion", d.toResourceVersion),
		Since:               dec.time("since", d.since),
		Reason:              GapReason(dec.text("reason", d.reason)),
		DeadLetter:          dec.text("deadLetter", d.deadLetter),
		Recovered:           dec.boolean("recovered", d.recovered),
		Initial:             dec.boolean("initial", d.initial),
		Continued:           dec.boolean("continued", d.continued),
		ObservedSince:       dec.time("observedSince", d.observedSince),
		Rules:               dec.rules("rules", d.rules),
		Writer:              dec.text("writer", d.writer),
		Run:                 dec.text("run", d.run),
		End:                 EndReason(dec.text("end", d.end)),
		Successors:          dec.list("successors", d.successors),
	}, dec.err
}
