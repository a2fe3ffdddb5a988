package oracle

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	jsonpatch "github.com/evanphx/json-patch/v5"
)

const typePrefix = "dev.kubecdc."

// opOf is the op of each type of object event.
var opOf = map[string]string{
	typePrefix + "object.created": Created,
	typePrefix + "object.updated": Updated,
	typePrefix + "object.deleted": Deleted,
	typePrefix + "object.read":    Read,
	typePrefix + "object.entered": Entered,
	typePrefix + "object.left":    Left,
}

// The kinds of stream events.
const (
	SnapshotStarted   = "snapshot.started"
	SnapshotCompleted = "snapshot.completed"
	Gap               = "gap"
	Progress          = "progress"
	ScopeStarted      = "scope.started"
	ScopeEnded        = "scope.ended"
)

// The reasons of gaps.
const (
	Expired          = "expired"
	Compacted        = "compacted"
	Rewound          = "rewound"
	SelectionChanged = "selection-changed"
	CheckpointLost   = "checkpoint-lost"
	DeadLetter       = "dead-letter"
	ContentChanged   = "content-changed"
)

// EndedByOperator is why a scope has ended that its agent has not ended.
const EndedByOperator = "forgotten"

// Presence is the form of before or after in data: Absent if the object is not known, Null if it
// does not exist, or Present.
type Presence int

// The values of Presence.
const (
	Absent Presence = iota
	Null
	Present
)

func (p Presence) String() string { return [...]string{"absent", "null", "an object"}[p] }

// Record has the fields of a record on the bus that the tests need. Positions count the records in
// the order of the stream.
type Record struct {
	Position uint64 // JetStream's sequence, Kafka's offset plus one, or the number of the line or of the arrival.
	Lane     int    // Kafka's partition; 0 on a bus with a single order.
	ID       string
	Op       string // "" for a stream event
	Key      ObjectKey
	UID      string
	Rev      uint64
	PrevRev  uint64
	Skipped  uint64    // The number of versions withheld since the object's last record.
	History  uint64    // The number of restores of etcd so far, from the id.
	Stored   time.Time // Zero if the bus does not report it.
	Time     time.Time // When the agent observed it, by its own clock.
	Epoch    uint64    // That of the leader that wrote the record; 0 without an election.

	Before, After             Presence
	BeforeDigest, AfterDigest Digest
	Inferred                  bool
	Redacted                  *bool // nil where absent
	Snapshot                  string
	ChangedBy                 []managed // Sorted; nil where absent.
	Truncated                 []string  // The members that were left out because the event was too large.
	// The reference to the whole event. The members above are then those of the whole event.
	Ref string

	Stream    string // The kind of a stream event, otherwise "".
	Scope     Scope
	From, To  uint64
	Since     time.Time // For a gap: when the API server last sent anything before it.
	Reason    string
	Recovered bool
	Objects   int
	Letter    string // For a gap with reason dead-letter: the id of the event in the dead letters.

	// Writer and Run name the agent of a progress, and of the start of a scope or snapshot.
	Writer, Run string
	// End is why a scope ends.
	End    string
	Report *Report // Nil if the record is not the progress of a writer.
	Size   int     // Bytes of the message's body.

	// Problems are violations of the contract that show in this record alone.
	Problems []string
}

// Scope is what one informer observes, read from a stream event's scope: "pods",
// "pods/shop?labelSelector=team=payments", "configmaps/*,!kube-*".
type Scope struct {
	Text       string
	Resource   string
	Namespaces string // As in the configuration, separated by commas; "" is all.
}

// ParseScope reads the text of a scope.
func ParseScope(text string) Scope {
	name, _, _ := strings.Cut(text, "?")
	resource, namespaces, _ := strings.Cut(name, "/")
	return Scope{Text: text, Resource: resource, Namespaces: namespaces}
}

// Has reports whether the object is in the scope, judged by its names. A namespace is in the scope
// if a pattern matches it and no pattern that begins with an exclamation mark does.
func (s Scope) Has(key ObjectKey) bool {
	if s.Resource != key.Resource {
		return false
	}
	if s.Namespaces == "" || key.Namespace == "" {
		return true
	}
	taken := false
	for pattern := range strings.SplitSeq(s.Namespaces, ",") {
		pattern, excluded := strings.CutPrefix(pattern, "!")
		if ok, err := path.Match(pattern, key.Namespace); err != nil || !ok {
			continue
		}
		if excluded {
			return false
		}
		taken = true
	}
	return taken
}

// Message is a record as the bus has it.
type Message struct {
	Position uint64
	Lane     int
	Subject  string              // For NATS only.
	Key      string              // For Kafka only.
	Header   map[string][]string // Nil if the bus has none.
	Body     []byte
	Stored   time.Time // Zero if the bus does not report it.
}

// envelope is the structured mode of the contract.
type envelope struct {
	SpecVersion     string       `json:"specversion"`
	ID              string       `json:"id"`
	Source          string       `json:"source"`
	Type            string       `json:"type"`
	Subject         string       `json:"subject"`
	Time            string       `json:"time"`
	DataContentType string       `json:"datacontenttype"`
	DataSchema      string       `json:"dataschema"`
	Cluster         string       `json:"cluster"`
	ClusterUID      string       `json:"clusteruid"`
	APIVersion      string       `json:"apiversion"`
	Kind            string       `json:"kind"`
	Resource        string       `json:"resource"`
	Namespace       string       `json:"namespace"`
	Name            string       `json:"name"`
	UID             string       `json:"uid"`
	Op              string       `json:"op"`
	ResourceVersion string       `json:"resourceversion"`
	Sequence        string       `json:"sequence"`
	PartitionKey    string       `json:"partitionkey"`
	Scope           string       `json:"scope"`
	DataRef         string       `json:"dataref"`
	DeadReason      string       `json:"deadletterreason"`
	Epoch           string       `json:"epoch"`
	Data            envelopeData `json:"data"`
}

type envelopeData struct {
	Op                      string          `json:"op"`
	ResourceVersion         string          `json:"resourceVersion"`
	PreviousResourceVersion string          `json:"previousResourceVersion"`
	Skipped                 *uint64         `json:"skipped"`
	Before                  json.RawMessage `json:"before"`
	After                   json.RawMessage `json:"after"`
	Patch                   json.RawMessage `json:"patch"`
	ChangedBy               []managed       `json:"changedBy"`
	Inferred                bool            `json:"inferred"`
	Redacted                *bool           `json:"redacted"`
	Snapshot                string          `json:"snapshot"`
	Objects                 int             `json:"objects"`
	Truncated               []string        `json:"truncated"`
	DataRef                 string          `json:"dataref"`

	FromResourceVersion string `json:"fromResourceVersion"`
	ToResourceVersion   string `json:"toResourceVersion"`
	Since               string `json:"since"`
	Reason              string `json:"reason"`
	Recovered           *bool  `json:"recovered"`
	DeadLetter          string `json:"deadLetter"`
	Writer              string `json:"writer"`
	Run                 string `json:"run"`
	End                 string `json:"end"`
	Rules               []any  `json:"rules"`
}

// Reader parses messages into records and checks each against the contract. It is not safe for
// concurrent use.
type Reader struct {
	Cluster    string
	ClusterUID string
	// Needles must not be anywhere in a message.
	Needles needles
	// Content replaces strip and its digest: it digests an object and returns the violations that
	// it finds.
	Content func(key ObjectKey, object map[string]any) (Digest, []string)
	// Shallow skips the most expensive checks, those of the patch and of the CloudEvents SDK. It is
	// for tests with very many records that check other properties.
	Shallow bool
	// MayTruncate is whether events may lack members that made them too large for the bus.
	MayTruncate bool
	// Elected is whether the agents elect a leader. Each event must then have its epoch; otherwise,
	// none may have one.
	Elected bool
	// Former is whether a release that sends starts and ends of scopes, and gaps, on the subject of
	// snapshots may have written records.
	Former bool
	// Whole fetches a whole event, in structured mode, by its reference. Nil: no event may have a
	// reference.
	Whole func(ref string) ([]byte, error)

	// last caches the hash and the digest of each object's last version: before is mostly the
	// previous after, byte for byte.
	last map[ObjectKey]remembered
}

type remembered struct {
	raw [sha256.Size]byte
	Digest
}

// Read parses a message into a record. The record's Problems list violations of the contract.
func (r *Reader) Read(m Message) Record {
	rec := Record{
		Position: m.Position,
		Lane:     m.Lane,
		Stored:   m.Stored,
		Size:     len(m.Body),
	}
	problem := func(format string, args ...any) {
		rec.Problems = append(rec.Problems, fmt.Sprintf(format, args...))
	}
	for _, found := range r.Needles.In(m) {
		problem("%s", found)
	}
	var e envelope
	if err := json.Unmarshal(m.Body, &e); err != nil {
		problem("not a structured CloudEvent: %v", err)
		return rec
	}
	rec.ID = e.ID
	rec.Time, _ = time.Parse(time.RFC3339Nano, e.Time) // Its form is checked below.
	if i := strings.LastIndex(e.ID, "/h"); i >= 0 {
		rec.History, _ = strconv.ParseUint(e.ID[i+2:], 10, 64) // 0 if it is not a number.
	}
	if !r.Shallow {
		// The SDK is the oracle for what a CloudEvent is.
		var ce event.Event
		if err := json.Unmarshal(m.Body, &ce); err != nil {
			problem("CloudEvents SDK: %v", err)
		} else if err := ce.Validate(); err != nil {
			problem("CloudEvents SDK: %v", err)
		}
	}
	want := func(attribute, got, want string) {
		if got != want {
			problem("%s is %q, want %q", attribute, got, want)
		}
	}
	want("specversion", e.SpecVersion, "1.0")
	want("source", e.Source, "/kubernetes/"+r.Cluster)
	want("datacontenttype", e.DataContentType, "application/json")
	want("cluster", e.Cluster, r.Cluster)
	want("clusteruid", e.ClusterUID, r.ClusterUID)
	rec.Epoch = parseRev("epoch", e.Epoch, problem)
	if r.Elected != (rec.Epoch > 0) ||
		e.Epoch != "" && e.Epoch != FormatRev(rec.Epoch) {
		problem("epoch is %q, and whether there is a leader is %t", e.Epoch, r.Elected)
	}
	if _, err := time.Parse(time.RFC3339Nano, e.Time); err != nil {
		problem("time: %v", err)
	}
	if m.Subject != "" {
		want("header Nats-Msg-Id", First(m.Header["Nats-Msg-Id"]), msgID(e.Source, e.ID))
	}
	kind, ok := strings.CutPrefix(e.Type, typePrefix)
	switch {
	case kind == Progress && e.Scope == "": // With a scope, it is of a former release.
		r.readReport(&rec, &e, m, problem, want)
	case ok && !strings.HasPrefix(kind, "object."):
		r.readStreamEvent(&rec, kind, &e, m, problem, want)
	default:
		r.readObjectEvent(&rec, &e, m, problem, want)
		r.readShortened(&rec, &e, problem)
	}
	return rec
}

func (r *Reader) readStreamEvent(
	rec *Record, kind string, e *envelope, m Message, problem func(string, ...any), want func(_, _, _ string),
) {
	rec.Stream = kind
	rec.Scope = ParseScope(e.Scope)
	rec.Snapshot = e.Data.Snapshot
	rec.Reason = e.Data.Reason
	rec.Objects = e.Data.Objects
	rec.Writer = e.Data.Writer
	rec.Run = e.Data.Run
	rec.End = e.Data.End
	rec.Recovered, rec.Letter = e.Data.Recovered != nil && *e.Data.Recovered, e.Data.DeadLetter
	rec.Rev = parseRev("data.resourceVersion", e.Data.ResourceVersion, problem)
	rec.From = parseRev("data.fromResourceVersion", e.Data.FromResourceVersion, problem)
	rec.To = parseRev("data.toResourceVersion", e.Data.ToResourceVersion, problem)
	if e.Scope == "" {
		problem("%s without scope", kind)
	}
	switch kind {
	case SnapshotStarted, SnapshotCompleted:
		want("id", e.ID, e.Scope+"/"+rec.Snapshot+"/"+strings.TrimPrefix(kind, "snapshot.")+historyEnd(rec.History))
		if rec.Snapshot == "" || rec.Rev == 0 {
			problem("%s without snapshot or resourceVersion", kind)
		}
	case Gap:
		end := ""
		switch {
		case rec.Letter != "":
			end = "/" + rec.Letter
		case rec.Reason == ContentChanged && !rec.Recovered: // The form of one version may change again.
			at, _ := time.Parse(time.RFC3339Nano, e.Time) // Checked above.
			end = fmt.Sprintf("/%s/%d", ContentChanged, at.UnixNano())
		case rec.Reason == ContentChanged: // It begins and ends at one revision, at which another gap may begin.
			end = "/" + ContentChanged
		case rec.Recovered: // A later gap that is not recovered may have the same revisions.
			end = "/recovered"
		}
		if (rec.Letter != "") != (rec.Reason == DeadLetter) {
			problem("gap with reason %s and dead letter %q", rec.Reason, rec.Letter)
		}
		want("id", e.ID, fmt.Sprintf("%s/gap/%d-%d%s%s", e.Scope, rec.From, rec.To, end, historyEnd(rec.History)))
		since, err := time.Parse(time.RFC3339Nano, e.Data.Since)
		rec.Since = since
		known := err == nil && (rec.From != 0 || rec.Letter != "") // A dead letter may be an object's first event.
		if !known || rec.To < rec.From && rec.Reason != Rewound || rec.Reason == "" || e.Data.Recovered == nil {
			problem("gap that does not say from where to where, since when, why, and whether recovered: %.300s", m.Body)
		}
		if rec.Reason == ContentChanged && rec.Recovered && rec.From != rec.To {
			problem("gap %d-%d, where only the rules for content changed", rec.From, rec.To)
		}
	case ScopeStarted, ScopeEnded:
		at, _ := time.Parse(time.RFC3339Nano, e.Time) // Checked above.
		want("id", e.ID,
			fmt.Sprintf("%s/%s/%d%s", e.Scope, strings.TrimPrefix(kind, "scope."), at.UnixNano(),
				historyEnd(rec.History)))
		if rec.Rev == 0 || e.Data.Writer == "" || e.Data.Run == "" {
			problem("%s that does not say where, and by whom: %.300s", kind, m.Body)
		}
		if (kind == ScopeStarted) != (len(e.Data.Rules) > 0) || (kind == ScopeEnded) != (e.Data.End != "") {
			problem("%s with rules %s and end %q", kind, e.Data.Rules, e.Data.End)
		}
	case Progress:
		// The id has the second of the event's time, so that it is new even if nothing has changed.
		at, _ := time.Parse(time.RFC3339Nano, e.Time) // Checked above.
		want("id", e.ID, fmt.Sprintf("%s/progress/%d/%d%s", e.Scope, rec.Rev, at.Unix(), historyEnd(rec.History)))
		if rec.Rev == 0 {
			problem("progress without resourceVersion")
		}
	default:
		problem("unknown type %q", e.Type)
	}
	plural, group := ObjectKey{Resource: rec.Scope.Resource}.Split()
	if m.Subject != "" {
		cluster, resource := "kubecdc."+Escape(r.Cluster), "."+subjectGroup(group)+"."+Escape(plural)
		subject := cluster + ".stream" + resource
		isOfScope := rec.Stream == ScopeStarted || rec.Stream == ScopeEnded || rec.Stream == Gap
		isFormer := r.Former && m.Subject == subject
		if isOfScope && !isFormer {
			subject = cluster + ".scope" + resource + "." + Escape(e.Scope)
		}
		want("NATS subject", m.Subject, subject)
	}
	if m.Key != "" {
		want("key", m.Key, e.PartitionKey+"/"+strconv.Itoa(m.Lane))
	}
	if !strings.HasSuffix(e.Subject, "/"+plural) {
		problem("subject is %q, want the path of %s", e.Subject, rec.Scope.Resource)
	}
}

func (r *Reader) readObjectEvent(
	rec *Record, e *envelope, m Message, problem func(string, ...any), want func(_, _, _ string),
) {
	op, ok := opOf[e.Type]
	if !ok {
		problem("unknown type %q", e.Type)
	}
	want("op", e.Op, op)
	want("data.op", e.Data.Op, op)
	group, apiVersion, ok := strings.Cut(e.APIVersion, "/")
	if !ok {
		group, apiVersion = "", e.APIVersion
	}
	resource := e.Resource
	if group != "" {
		resource += "." + group
	}
	rec.Op, rec.UID = op, e.UID
	if e.Scope != "" { // The scope has a selector.
		rec.Scope = ParseScope(e.Scope)
	}
	rec.Key = ObjectKey{Resource: resource, Namespace: e.Namespace, Name: e.Name}
	rec.Rev = parseRev("resourceversion", e.ResourceVersion, problem)
	rec.PrevRev = parseRev("data.previousResourceVersion", e.Data.PreviousResourceVersion, problem)
	if s := e.Data.Skipped; s != nil {
		rec.Skipped = *s
		if *s == 0 {
			problem("skipped is 0, which is told by its absence")
		}
	}
	rec.Inferred, rec.Snapshot = e.Data.Inferred, e.Data.Snapshot
	rec.Redacted = e.Data.Redacted
	if e.Data.ChangedBy != nil {
		rec.ChangedBy = sortManaged(e.Data.ChangedBy)
	}

	want("data.resourceVersion", e.Data.ResourceVersion, e.ResourceVersion)
	want("sequence", e.Sequence, fmt.Sprintf("%020d", rec.Rev))
	want("dataschema", e.DataSchema, "https://kubecdc.dev/schema/object/v1")
	url := "/api/v1"
	if group != "" {
		url = "/apis/" + group + "/" + apiVersion
	}
	namespace := "_"
	if e.Namespace != "" {
		url += "/namespaces/" + e.Namespace
		namespace = e.Namespace
	}
	want("subject", e.Subject, url+"/"+e.Resource+"/"+e.Name)
	partition := r.Cluster + "/" + CoreGroup(group) + "/" + e.Resource + "/" + namespace + "/" + e.Name
	want("partitionkey", e.PartitionKey, partition)
	if m.Key != "" {
		want("key", m.Key, partition)
	}
	end := FormatRev(rec.Rev)
	switch op {
	case Deleted:
		end = "d"
	case Left:
		end += "/l"
	case Read:
		end += "/r/" + rec.Snapshot
		if rec.Snapshot == "" {
			problem("read without snapshot")
		}
	}
	want("id", e.ID, resource+"/"+e.UID+"/"+end+historyEnd(rec.History))
	if m.Subject != "" {
		want("NATS subject", m.Subject, strings.Join([]string{
			"kubecdc", Escape(r.Cluster), "object", subjectGroup(group), Escape(e.Resource), Escape(namespace),
			Escape(e.Name),
		}, "."))
	}

	rec.Before, rec.BeforeDigest = r.object(rec, e, "before", e.Data.Before, problem)
	rec.After, rec.AfterDigest = r.object(rec, e, "after", e.Data.After, problem)
	if !r.Shallow {
		checkPatch(rec, &e.Data, problem)
	}
}

// object digests before or after, and checks it against the event and for fields that it must not
// have.
func (r *Reader) object(
	rec *Record, e *envelope, member string, raw json.RawMessage, problem func(string, ...any),
) (Presence, Digest) {
	switch {
	case len(raw) == 0:
		return Absent, Digest{}
	case string(raw) == "null":
		return Null, Digest{}
	}
	sum := sha256.Sum256(raw)
	if last := r.last[rec.Key]; last.raw == sum {
		return Present, last.Digest
	}
	obj, err := DecodeObject(raw)
	if err != nil {
		problem("%s: %v", member, err)
		return Present, Digest{}
	}
	if r.Content == nil {
		for _, field := range unstripped(obj) {
			problem("%s has %s", member, field)
		}
	}
	if obj["apiVersion"] != e.APIVersion || obj["kind"] != e.Kind {
		problem("%s is a %v %v in an event of %s %s", member, obj["apiVersion"], obj["kind"], e.APIVersion, e.Kind)
	}
	meta, _ := obj["metadata"].(map[string]any)
	if member == "after" && meta["resourceVersion"] != e.ResourceVersion {
		problem("after has resourceVersion %v in an event of %s", meta["resourceVersion"], e.ResourceVersion)
	}
	if meta["uid"] != e.UID {
		problem("%s has uid %v in an event of %s", member, meta["uid"], e.UID)
	}
	var d Digest
	if r.Content == nil {
		d = digestOf(obj)
	} else {
		var wrong []string
		d, wrong = r.Content(rec.Key, obj)
		for _, w := range wrong {
			problem("%s %s", member, w)
		}
	}
	if r.last == nil {
		r.last = make(map[ObjectKey]remembered)
	}
	r.last[rec.Key] = remembered{sum, d}
	return Present, d
}

// checkPatch checks that the patch, applied to before, results in after.
func checkPatch(rec *Record, data *envelopeData, problem func(string, ...any)) {
	if rec.Op != Updated || rec.Before != Present || rec.After != Present {
		return
	}
	if len(data.Patch) == 0 && slices.Contains(data.Truncated, "patch") {
		return
	}
	if len(data.Patch) == 0 {
		problem("updated without patch")
		return
	}
	patch, err := jsonpatch.DecodePatch(data.Patch)
	if err != nil {
		problem("patch: %v", err)
		return
	}
	patched, err := patch.Apply(data.Before)
	if err != nil {
		problem("patch does not apply to before: %v", err)
		return
	}
	got, err := DecodeObject(patched)
	if err != nil {
		problem("patch applied to before: %v", err)
		return
	}
	// Not jsonpatch.Equal: the test must not depend on its definition of equality.
	if want, err := DecodeObject(data.After); err != nil || !reflect.DeepEqual(got, want) {
		problem("patch applied to before is not after:\n patch %.500s", data.Patch)
	}
}

func parseRev(member, text string, problem func(string, ...any)) uint64 {
	if text == "" {
		return 0
	}
	rev, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		problem("%s: %v", member, err)
	}
	return rev
}

// historyEnd returns the suffix of the ids of a history: "" before the first restore of etcd.
func historyEnd(history uint64) string {
	if history == 0 {
		return ""
	}
	return "/h" + FormatRev(history)
}

// FormatRev formats a revision as text.
func FormatRev(rev uint64) string { return strconv.FormatUint(rev, 10) }

// First returns the first string of a list, or "" if there is none.
func First(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// msgID returns the Nats-Msg-Id that the contract requires.
func msgID(source, id string) string {
	sum := sha256.Sum256([]byte(source + "\n" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

// CoreGroup returns the name of an API group in subjects and keys: "core" for the group without a
// name.
func CoreGroup(group string) string {
	if group == "" {
		return "core"
	}
	return group
}

func subjectGroup(group string) string { return Escape(strings.ReplaceAll(CoreGroup(group), ".", "_")) }

// Escape returns the token of a NATS subject that the contract requires. It percent-encodes s, and
// shortens a long token to a prefix and a hash.
func Escape(s string) string {
	const (
		plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-:="
		most  = 256
		keep  = 128
	)
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= most {
		return b.String()
	}
	return b.String()[:keep] + fmt.Sprintf("~%x", sha256.Sum256([]byte(s)))
}
