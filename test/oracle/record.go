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

// Presence is how a member of data is there: not known, does not exist, or an object.
type Presence int

// The values of Presence.
const (
	Absent Presence = iota
	Null
	Present
)

func (p Presence) String() string { return [...]string{"absent", "null", "an object"}[p] }

// Record is what the tests need of a record on the bus. Positions count the records as they lie in the stream.
type Record struct {
	Position uint64 // JetStream's sequence, one more than Kafka's offset, the number of the line or of the arrival.
	Lane     int    // Of a bus that keeps order only in each of several lanes: Kafka's partition. Else 0.
	ID       string
	Op       string // "" for a stream event
	Key      ObjectKey
	UID      string
	Rev      uint64
	PrevRev  uint64
	Skipped  uint64    // How many versions were withheld since the object's last record.
	History  uint64    // As the id has it: how many restores of etcd there were before.
	Stored   time.Time // Zero where the bus does not tell.
	Epoch    uint64    // Of the leader that has written it; 0 where there is no election.

	Before, After             Presence
	BeforeDigest, AfterDigest Digest
	Inferred                  bool
	Snapshot                  string
	ChangedBy                 []managed // Sorted; nil where absent.
	Truncated                 []string  // What was given up because the event was too large.
	Ref                       string    // Where the whole event is. What is above is then the whole event's.

	Stream    string // The kind of a stream event, else "".
	Scope     Scope
	From, To  uint64
	Reason    string
	Recovered bool
	Objects   int
	Letter    string // Of a gap behind a dead letter: the id of the event that is there.

	// Problems are offences against the contract that one record shows by itself.
	Problems []string
}

// Scope is what one informer observes, read from a stream event's scope: "pods", "pods/shop?labelSelector=team=payments",
// "configmaps/*,!kube-*".
type Scope struct {
	Text       string
	Resource   string
	Namespaces string // As in the configuration, with commas between; "" is all.
}

// ParseScope reads the text of a scope.
func ParseScope(text string) Scope {
	name, _, _ := strings.Cut(text, "?")
	resource, namespaces, _ := strings.Cut(name, "/")
	return Scope{Text: text, Resource: resource, Namespaces: namespaces}
}

// Has tells whether the object is in the scope, as far as names say it: a namespace is taken if a pattern takes it and
// none that begins with an exclamation mark does.
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
	Subject  string              // NATS'; "" elsewhere.
	Key      string              // Kafka's; "" elsewhere.
	Header   map[string][]string // Nil where the bus has none.
	Body     []byte
	Stored   time.Time // Zero where the bus does not tell.
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
}

// Reader turns messages into records and checks each against the contract. Not safe for concurrent use.
type Reader struct {
	Cluster    string
	ClusterUID string
	// Needles must not be anywhere in a message.
	Needles needles
	// Content digests an object, and names what is wrong with it, where something else than strip says what has to be in it.
	Content func(key ObjectKey, object map[string]any) (Digest, []string)
	// Shallow leaves out what costs most, the patch and the CloudEvents SDK: for tests with very many records, which
	// have other things to show.
	Shallow bool
	// MayTruncate: events may lack what made them too large for the bus.
	MayTruncate bool
	// Elected: the agents have a leader, whose epoch each event has to carry. Else none may.
	Elected bool
	// Whole fetches a whole event, in structured mode, by the reference that stands for it. Nil: there may be none.
	Whole func(ref string) ([]byte, error)

	// last remembers the bytes of each object's last version with their digest: before is mostly the previous after,
	// byte for byte.
	last map[ObjectKey]remembered
}

type remembered struct {
	raw [sha256.Size]byte
	Digest
}

// Read turns a message into a record. What is wrong with it is in the problems of the record.
func (r *Reader) Read(m Message) Record {
	rec := Record{Position: m.Position, Lane: m.Lane, Stored: m.Stored}
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
	if i := strings.LastIndex(e.ID, "/h"); i >= 0 {
		rec.History, _ = strconv.ParseUint(e.ID[i+2:], 10, 64) // 0 where it is something else.
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
	if rec.Epoch = parseRev("epoch", e.Epoch, problem); r.Elected != (rec.Epoch > 0) || e.Epoch != "" && e.Epoch != FormatRev(rec.Epoch) {
		problem("epoch is %q, and whether there is a leader is %t", e.Epoch, r.Elected)
	}
	if _, err := time.Parse(time.RFC3339Nano, e.Time); err != nil {
		problem("time: %v", err)
	}
	if m.Subject != "" {
		want("header Nats-Msg-Id", First(m.Header["Nats-Msg-Id"]), msgID(e.Source, e.ID))
	}
	if kind, ok := strings.CutPrefix(e.Type, typePrefix); ok && !strings.HasPrefix(kind, "object.") {
		r.readStreamEvent(&rec, kind, &e, m, problem, want)
	} else {
		r.readObjectEvent(&rec, &e, m, problem, want)
		r.readShortened(&rec, &e, problem)
	}
	return rec
}

func (r *Reader) readStreamEvent(rec *Record, kind string, e *envelope, m Message, problem func(string, ...any), want func(_, _, _ string)) {
	rec.Stream = kind
	rec.Scope = ParseScope(e.Scope)
	rec.Snapshot, rec.Reason, rec.Objects = e.Data.Snapshot, e.Data.Reason, e.Data.Objects
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
		case rec.Reason == ContentChanged: // It is no span: another gap may begin where it is.
			end = "/" + ContentChanged
		case rec.Recovered: // A later gap that is not recovered may have the same ends.
			end = "/recovered"
		}
		if (rec.Letter != "") != (rec.Reason == DeadLetter) {
			problem("gap with reason %s and dead letter %q", rec.Reason, rec.Letter)
		}
		want("id", e.ID, fmt.Sprintf("%s/gap/%d-%d%s%s", e.Scope, rec.From, rec.To, end, historyEnd(rec.History)))
		known := e.Data.Since != "" && (rec.From != 0 || rec.Letter != "") // A dead letter may be an object's first event.
		if !known || rec.To < rec.From && rec.Reason != Rewound || rec.Reason == "" || e.Data.Recovered == nil {
			problem("gap that does not say from where to where, since when, why, and whether recovered: %.300s", m.Body)
		}
		if rec.Reason == ContentChanged && (rec.From != rec.To || !rec.Recovered) {
			problem("gap %d-%d, recovered %t, where only the content changed", rec.From, rec.To, rec.Recovered)
		}
	case Progress:
		// The second in which it was sent makes it news where nothing changes.
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
		want("NATS subject", m.Subject, "kubecdc."+Escape(r.Cluster)+".stream."+subjectGroup(group)+"."+Escape(plural))
	}
	if m.Key != "" {
		want("key", m.Key, e.PartitionKey+"/"+strconv.Itoa(m.Lane))
	}
	if !strings.HasSuffix(e.Subject, "/"+plural) {
		problem("subject is %q, want the path of %s", e.Subject, rec.Scope.Resource)
	}
}

func (r *Reader) readObjectEvent(rec *Record, e *envelope, m Message, problem func(string, ...any), want func(_, _, _ string)) {
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
	if e.Scope != "" { // Where it has a selector.
		rec.Scope = ParseScope(e.Scope)
	}
	rec.Key = ObjectKey{Resource: resource, Namespace: e.Namespace, Name: e.Name}
	rec.Rev = parseRev("resourceversion", e.ResourceVersion, problem)
	rec.PrevRev = parseRev("data.previousResourceVersion", e.Data.PreviousResourceVersion, problem)
	if s := e.Data.Skipped; s != nil {
		if rec.Skipped = *s; *s == 0 {
			problem("skipped is 0, which is told by its absence")
		}
	}
	rec.Inferred, rec.Snapshot = e.Data.Inferred, e.Data.Snapshot
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
			"kubecdc", Escape(r.Cluster), "object", subjectGroup(group), Escape(e.Resource), Escape(namespace), Escape(e.Name),
		}, "."))
	}

	rec.Before, rec.BeforeDigest = r.object(rec, e, "before", e.Data.Before, problem)
	rec.After, rec.AfterDigest = r.object(rec, e, "after", e.Data.After, problem)
	if !r.Shallow {
		checkPatch(rec, &e.Data, problem)
	}
}

// object digests before or after and checks what they must not hold.
func (r *Reader) object(rec *Record, e *envelope, member string, raw json.RawMessage, problem func(string, ...any)) (Presence, Digest) {
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

// checkPatch applies the patch to before, which has to give after.
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
	// Not jsonpatch.Equal: what it takes for equal is what is to be tested.
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

// historyEnd is how ids of a history end: the first one's are plain.
func historyEnd(history uint64) string {
	if history == 0 {
		return ""
	}
	return "/h" + FormatRev(history)
}

// FormatRev is a revision as text.
func FormatRev(rev uint64) string { return strconv.FormatUint(rev, 10) }

// First is the first string of a list, "" if there is none.
func First(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// msgID is the contract's Nats-Msg-Id.
func msgID(source, id string) string {
	sum := sha256.Sum256([]byte(source + "\n" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

// CoreGroup is the name of an API group in subjects and keys: "core" for the group without a name.
func CoreGroup(group string) string {
	if group == "" {
		return "core"
	}
	return group
}

func subjectGroup(group string) string { return Escape(strings.ReplaceAll(CoreGroup(group), ".", "_")) }

// Escape makes a token of a NATS subject, by the contract: percent-encoding, and the hash of what is too long.
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
