package nats

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// copies has the subjects that a stream copies from other streams. The stream of a tenant, for
// example, copies the records of one namespace. If it has no record of another namespace, that
// namespace need not be empty. Only the streams that it copies directly count: whether those copy
// others is not known. It is safe for concurrent use.
type copies struct {
	template string // bus.nats.subject
	last     atomic.Pointer[copied]
}

// copied are the subjects of a stream that copies others.
type copied struct {
	limit    *subjectfilter.Limit
	stream   string
	subjects []string
}

// note takes the sources and the mirror of a stream, as fromnats.JetStream.OnOpen does.
func (c *copies) note(info *jetstream.StreamInfo) {
	subjects, isCopy := subjectsOfCopy(&info.Config)
	if !isCopy {
		c.last.Store(nil)
		return
	}
	limit, err := subjectfilter.NewLimit(c.template, subjects)
	if err != nil { // impossible: the template was checked
		return
	}
	c.last.Store(&copied{limit, info.Config.Name, subjects})
}

// reads returns what driver.Confined.Reads returns, for the copied subjects.
func (c *copies) reads(objects []consume.Objects, events consume.Events, cluster string) (some, all bool) {
	of := c.last.Load()
	if of == nil {
		return true, true
	}
	clusters := []string{cluster}
	if cluster == "" {
		clusters = clustersOf(of.subjects)
	}
	all = true
	for _, cluster := range clusters {
		someOf, allOf := of.limit.Reads(objects, events, cluster)
		some, all = some || someOf, all && allOf
	}
	return some, all
}

// only describes the subjects. "": the stream copies no other one.
func (c *copies) only() string {
	of := c.last.Load()
	if of == nil {
		return ""
	}
	return fmt.Sprintf("stream %s copies only %s (nats stream info)", of.stream, strings.Join(of.subjects, ", "))
}

// clustersOf returns the clusters whose progress the subjects include; "" for any.
func clustersOf(subjects []string) []string {
	var all []string
	for _, s := range subjects {
		if !subject.Overlap(s, "kubecdc.*.progress.*") {
			continue
		}
		tokens := strings.Split(s, ".")
		if len(tokens) < 2 || tokens[1] == "*" || tokens[1] == ">" || strings.Contains(tokens[1], "%") {
			return []string{""}
		}
		if !slices.Contains(all, tokens[1]) {
			all = append(all, tokens[1])
		}
	}
	if len(all) == 0 {
		return []string{""}
	}
	return all
}

// subjectsOfCopy returns the subjects that a stream copies from other streams, unless it copies all
// of them.
func subjectsOfCopy(c *jetstream.StreamConfig) (subjects []string, isCopy bool) {
	from := c.Sources
	if c.Mirror != nil {
		from = append(slices.Clone(from), c.Mirror)
	}
	if len(from) == 0 {
		return nil, false
	}
	subjects = slices.Clone(c.Subjects)
	for _, s := range from {
		switch {
		case len(s.SubjectTransforms) == 0 && s.FilterSubject == "":
			return nil, false
		case len(s.SubjectTransforms) == 0:
			subjects = append(subjects, s.FilterSubject)
		}
		for _, t := range s.SubjectTransforms {
			if !keepsSubjects(t) {
				continue
			}
			if t.Source == "" || t.Source == ">" {
				return nil, false
			}
			subjects = append(subjects, t.Source)
		}
	}
	return subjects, true
}

// keepsSubjects reports whether a transform only selects.
func keepsSubjects(t jetstream.SubjectTransformConfig) bool {
	if t.Destination == "" || t.Destination == t.Source {
		return true
	}
	from, to := strings.Split(t.Source, "."), strings.Split(t.Destination, ".")
	if len(from) != len(to) {
		return false
	}
	wildcards := 0
	for i, token := range from {
		if token == "*" {
			wildcards++
			if to[i] == fmt.Sprint("$", wildcards) ||
				strings.EqualFold(to[i], fmt.Sprintf("{{wildcard(%d)}}", wildcards)) {
				continue
			}
			return false
		}
		if to[i] != token {
			return false
		}
	}
	return true
}

// stream is a stream that its reader may read as a whole.
type stream struct {
	fromnats.JetStream
	copies *copies
}

// Reads implements driver.Confined. Before the first Read it is not known what the stream copies.
func (s *stream) Reads(objects []consume.Objects, events consume.Events, cluster string) (some, all bool) {
	return s.copies.reads(objects, events, cluster)
}

// Only implements driver.Confined.
func (s *stream) Only() string { return s.copies.only() }
