package driver

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Changelogger is the Config of a target that can have the rows of a table in place of records.
type Changelogger interface {
	// ValidateChangelog returns the errors that Validate does not return. to is the path of the
	// settings, streamTopic that of topic.
	ValidateChangelog(to, streamTopic *field.Path, topic string, f *Facts) field.ErrorList
}

// ChangelogOpener is the Opener of a Changelogger.
type ChangelogOpener interface {
	// OpenChangelog is Open for the rows. streamTopic is the topic of the events about the stream,
	// "" for the default.
	OpenChangelog(e *Env, streamTopic string) (*Changelog, error)
}

// Changelog is the two buses of a table. None is run yet.
type Changelog struct {
	Rows   Log // receives the rows of objects, and adds a tombstone to each event of op d
	Stream Log // receives the events about the stream
}

// Log is a bus whose records can be read again: topics of Kafka.
type Log interface {
	publish.Bus
	// Scan calls each with the key and the value of all records that the topics for objects of a
	// resource have at the time of the call. nil: all topics. Those of a key come in order. The
	// value of a tombstone is nil. key and value are valid during the call. Scan returns the first
	// error of each.
	Scan(ctx context.Context, r *object.Resource, each func(key, value []byte) error) error
}
