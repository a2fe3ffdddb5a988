package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// FormatVersion is the format that this release writes and reads.
const FormatVersion = 1

// Document is the stored form of a checkpoint.
type Document struct {
	FormatVersion int `json:"formatVersion"`
	Identity
	// Writer identifies the run of the agent that wrote the document; Save counts its attempts.
	Writer string    `json:"writer"`
	Save   uint64    `json:"save"`
	Saved  time.Time `json:"saved"`
	// the last time of the run's events; zero if an older release wrote the document
	Time   time.Time        `json:"time,omitzero"`
	Logs   []Log            `json:"logs,omitempty"`
	Scopes map[string]Scope `json:"scopes"` // by name
}

// Identity names the owner of a checkpoint: resourceVersions mean nothing to another cluster, and
// another bus does not have the records that they stand for.
type Identity struct {
	ClusterUID string `json:"clusterUID"`
	Cluster    string `json:"cluster"` // the name in events
	Bus        string `json:"bus"`     // the bus and its stream, in readable form without credentials
	Epoch      uint64 `json:"epoch"`   // of the leader; 0 without an election
}

// Encode returns the document as JSON. Its last member is the SHA-256 of the bytes before it, in
// every format.
func (d *Document) Encode() ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false) // a selector is read by people
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("encode the checkpoint: %w", err)
	}
	body := bytes.TrimSuffix(buf.Bytes(), []byte("\n}\n"))
	return append(body, seal(body)...), nil
}

const (
	sealHead = ",\n  \"sha256\": \""
	sealTail = "\"\n}\n"
	sealSize = len(sealHead) + 2*sha256.Size + len(sealTail)
)

func seal(body []byte) string {
	return fmt.Sprintf("%s%x%s", sealHead, sha256.Sum256(body), sealTail)
}

// Decode parses a document. It returns an *Error of kind ErrDamaged or ErrFormat, without Where.
func Decode(data []byte) (*Document, error) {
	end := len(data) - sealSize
	if end < 0 || string(data[end:]) != seal(data[:end]) {
		return nil, damaged("its content does not match its sha256 (it was cut short, or edited)", nil)
	}
	// Another format may give the rest any shape.
	var version struct {
		FormatVersion int `json:"formatVersion"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, damaged("not JSON", err)
	}
	if version.FormatVersion != FormatVersion {
		return nil, &Error{
			Kind:   ErrFormat,
			What:   fmt.Sprintf("it has format %d, this kubecdc reads %d", version.FormatVersion, FormatVersion),
			Remedy: "use the kubecdc that wrote it, or " + startOver,
		}
	}
	d := new(Document)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, damaged("its JSON does not fit the format", err)
	}
	return d, nil
}

func damaged(what string, err error) error {
	return &Error{
		Kind:   ErrDamaged,
		What:   "it is damaged: " + what,
		Err:    err,
		Remedy: "restore it from a copy, or " + startOver,
	}
}

// check returns an error unless an agent with this identity may resume from the document.
func (d *Document) check(id Identity) error {
	foreign := func(format string, args ...any) error {
		return &Error{Kind: ErrForeign, What: fmt.Sprintf(format, args...), Remedy: orElse}
	}
	switch {
	case d.ClusterUID != id.ClusterUID:
		return foreign("it belongs to cluster %q (uid %s), this is %q (uid %s)", d.Cluster, d.ClusterUID, id.Cluster,
			id.ClusterUID)
	case d.Cluster != id.Cluster:
		return foreign(
			"it was written for cluster name %q, the name is now %q: consumers see the same objects as different ones",
			d.Cluster, id.Cluster)
	case d.Bus != id.Bus:
		return foreign("it belongs to the records on %s, this is %s", d.Bus, id.Bus)
	case d.Epoch > id.Epoch:
		return &Error{
			Kind:   ErrEpoch,
			What:   fmt.Sprintf("the leader of epoch %d wrote it, this leader has epoch %d", d.Epoch, id.Epoch),
			Remedy: "stop this agent; if that leader no longer exists, " + startOver,
		}
	}
	return nil
}
