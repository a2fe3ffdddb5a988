package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// FormatVersion is what this release writes and reads.
const FormatVersion = 1

// Document is a checkpoint as it is kept.
type Document struct {
	FormatVersion int `json:"formatVersion"`
	Identity
	// Writer is the run of an agent that has written it, Save counts what that run has written.
	Writer string           `json:"writer"`
	Save   uint64           `json:"save"`
	Saved  time.Time        `json:"saved"`
	Logs   []Log            `json:"logs,omitempty"`
	Scopes map[string]Scope `json:"scopes"` // by name
}

// Identity is whose a checkpoint is: resourceVersions mean nothing to another cluster, and another bus has not acknowledged
// what they stand for.
type Identity struct {
	ClusterUID string `json:"clusterUID"`
	Cluster    string `json:"cluster"` // the name that events carry
	Bus        string `json:"bus"`     // where records go, for people to read: without credentials
	Epoch      uint64 `json:"epoch"`   // of the leader, 0: there is no election
}

// Encode is the document in JSON, with a seal as its last member: the SHA-256 of all that stands before it. Every format
// has this seal.
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

// Decode reads a document. Its errors are *Error without a place: ErrDamaged, ErrFormat.
func Decode(data []byte) (*Document, error) {
	end := len(data) - sealSize
	if end < 0 || string(data[end:]) != seal(data[:end]) {
		return nil, damaged("its content does not fit its sha256 (it was cut short, or edited)", nil)
	}
	// Of another format, the rest may have any shape.
	var version struct {
		FormatVersion int `json:"formatVersion"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, damaged("no JSON", err)
	}
	if version.FormatVersion != FormatVersion {
		return nil, &Error{
			Kind: ErrFormat, What: fmt.Sprintf("it is of format %d, this kubecdc knows %d", version.FormatVersion, FormatVersion),
			Remedy: "use the kubecdc that wrote it, or " + startOver,
		}
	}
	d := new(Document)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, damaged("its JSON has another shape", err)
	}
	return d, nil
}

func damaged(what string, err error) error {
	return &Error{Kind: ErrDamaged, What: "it is damaged: " + what, Err: err, Remedy: "put back a copy of it, or " + startOver}
}

// check is nil if the document may be gone on from by id.
func (d *Document) check(id Identity) error {
	foreign := func(format string, args ...any) error {
		return &Error{Kind: ErrForeign, What: fmt.Sprintf(format, args...), Remedy: orElse}
	}
	switch {
	case d.ClusterUID != id.ClusterUID:
		return foreign("it is of cluster %q (uid %s), this is %q (uid %s)", d.Cluster, d.ClusterUID, id.Cluster, id.ClusterUID)
	case d.Cluster != id.Cluster:
		return foreign("the cluster was named %q when it was written, and is named %q now: to consumers, all of its objects are others", d.Cluster, id.Cluster)
	case d.Bus != id.Bus:
		return foreign("it is of the records on %s, this is %s", d.Bus, id.Bus)
	case d.Epoch > id.Epoch:
		return &Error{
			Kind: ErrEpoch, What: fmt.Sprintf("the leader of epoch %d has written it, this one is of epoch %d", d.Epoch, id.Epoch),
			Remedy: "end this one; where that leader is no more, " + startOver,
		}
	}
	return nil
}
