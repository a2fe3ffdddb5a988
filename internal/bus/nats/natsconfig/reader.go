package natsconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/config/check"
)

// Reader confines those who read the bus to some of its subjects, as their permissions do.
type Reader struct {
	// Consumers is fromnats.JetStream.Consumers of commands. A relay appends its name to it.
	Consumers string   `yaml:"consumers,omitempty"`
	Subjects  []string `yaml:"subjects,omitempty"`
}

const (
	mostConsumers = 64 // of a reader, as in package consume
	longestName   = 64
)

// ConsumersOf returns the prefix of a relay's consumers.
func (r *Reader) ConsumersOf(relay string) string { return r.Consumers + "-" + relay }

// Only names the subjects, for people.
func (r *Reader) Only() string {
	return "the reader may read only " + strings.Join(r.Subjects, ", ") + " (bus.nats.reader.subjects)"
}

var readerName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,` + fmt.Sprint(longestName) + `}$`)

// readerSubject matches tokens separated by dots. A token may be the wildcard *, and the last one
// may be >.
var readerSubject = regexp.MustCompile(`^([^\x00-\x20\x7f.*>]+|\*)(\.([^\x00-\x20\x7f.*>]+|\*))*(\.>)?$`)

// withReaderKeys adds the constraints of the reader's keys.
func withReaderKeys(all map[string]check.Key) map[string]check.Key {
	all["reader.consumers"] = check.Key{Pattern: readerName.String(), Required: true}
	all["reader.subjects"] = check.Key{Required: true, NotEmpty: true}
	all["reader.subjects[]"] = check.Key{Pattern: readerSubject.String()}
	return all
}

func (r *Reader) validate(path *field.Path, f *driver.Facts) field.ErrorList {
	switch {
	case r == nil:
		return nil
	case f.Target:
		return field.ErrorList{
			field.Forbidden(path, "is for the bus that is read, and a relay writes to its target: remove it"),
		}
	}
	var list field.ErrorList
	names, subjects := path.Child("consumers"), path.Child("subjects")
	if r.Consumers == "" {
		list = append(list, field.Required(names, "is missing: the names of the reader's consumers begin with it"))
	} else {
		list = append(list, check.Matches(names, r.Consumers, readerName,
			fmt.Sprintf(`must be at most %d of A-Z, a-z, 0-9, "-" and "_"`, longestName))...)
	}
	switch {
	case len(r.Subjects) == 0:
		list = append(list, field.Required(subjects, "is missing: list the subjects that the reader may read"))
	case len(r.Subjects) > mostConsumers:
		list = append(list, field.TooMany(subjects, len(r.Subjects), mostConsumers))
	}
	for i, s := range r.Subjects {
		at := subjects.Index(i)
		wrong := check.Matches(at, s, readerSubject,
			"must be a subject such as kubecdc.*.object.*.*.shop.*: * for a token, > at the end")
		if j := slices.IndexFunc(r.Subjects[:i], func(other string) bool {
			return subject.Overlap(s, other)
		}); j >= 0 && wrong == nil {
			wrong = field.ErrorList{
				field.Invalid(at, s,
					fmt.Sprintf("must not overlap with %s: its records would be read twice", subjects.Index(j))),
			}
		}
		list = append(list, wrong...)
	}
	return list
}
