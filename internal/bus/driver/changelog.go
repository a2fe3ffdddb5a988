package driver

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

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
	OpenChangelog(e *Env, streamTopic string) (publish.Bus, error)
}
