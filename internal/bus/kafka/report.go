package kafka

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// report is the progress of the agent in a broadcast. It is about many scopes, and each topic gets
// the entries of those that may have objects in it.
type report struct {
	scopes  []object.ScopeReport
	named   map[string]int // entry by the key of its scope
	others  map[string]int // entry for all scopes that have none, by resource
	claims  map[string]int // an entry that has a resourceVersion, by resource
	cluster string         // see clusterKey
	writer  string         // key of the writer
	run     string         // key of the run

	// The fields below are of the chosen topics.
	entries    map[string][]int         // by topic
	contents   map[string]*encode.Event // by topic
	everywhere map[string]bool          // resources whose entries go to all of their topics
}

func newReport(e *publish.Event) *report {
	r := &report{
		scopes:  e.Delta.Report.Scopes,
		named:   map[string]int{},
		others:  map[string]int{},
		claims:  map[string]int{},
		cluster: clusterKey(e.Event),
		writer:  scopeKey(e.Event, "writer "+string(e.Writer)),
		run:     scopeKey(e.Event, "run "+runOf(e.ID)),
	}
	for i := range r.scopes {
		s := &r.scopes[i]
		if s.Scope != "" {
			r.named[scopeKey(e.Event, s.Scope)] = i
		} else {
			r.others[s.Resource.String()] = i
		}
		if s.ResourceVersion > 0 {
			r.claims[s.Resource.String()] = i
		}
	}
	return r
}

// runOf returns the id of a progress event without the number of the event in the run.
func runOf(id []byte) string { return string(id[:max(bytes.LastIndexByte(id, '/'), 0)]) }

// claimAbout returns the entry for the scope of a topic's last event, by its key. It returns false
// if the report claims nothing about it.
func (r *report) claimAbout(key string, last *lastEvent) (*object.ScopeReport, bool) {
	if last.cluster != r.cluster {
		return nil, false
	}
	i, ok := r.named[key]
	switch {
	case last.ofAny:
		i, ok = r.claims[last.resource]
	case !ok:
		i, ok = r.others[last.resource]
	}
	if !ok || r.scopes[i].ResourceVersion == 0 {
		return nil, false
	}
	return &r.scopes[i], true
}

// resources returns the resources of the entries for a topic.
func (r *report) resources(topic string) map[string]bool {
	all := map[string]bool{}
	for _, i := range r.entries[topic] {
		all[r.scopes[i].Resource.String()] = true
	}
	return all
}

// isBehind reports whether the topic has an event that no report in it includes, of a scope about
// which r claims something. The topic is also behind if it lacks a report that went to all topics.
func (l *ledger) isBehind(r *report, resources map[string]bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, last := range l.behind {
		if _, ok := r.claimAbout(key, &last); ok {
			return true
		}
	}
	for resource := range resources {
		if l.owed[r.writer+" "+resource] {
			return true
		}
	}
	return false
}

// settleReport notes that all partitions have the report.
func (l *ledger) settleReport(r *report, resources map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, last := range l.behind {
		if s, ok := r.claimAbout(key, &last); ok && last.compare(historyVersion{s.History, s.ResourceVersion}) <= 0 {
			delete(l.behind, key)
		}
	}
	for resource := range resources {
		delete(l.owed, r.writer+" "+resource)
	}
}

// oweReport notes that a partition lacks a report that goes to all topics.
func (l *ledger) oweReport(r *report, resources map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for resource := range resources {
		if r.everywhere[resource] {
			l.owed[r.writer+" "+resource] = true
		}
	}
}

// noteReport notes which topics have a report in all of their partitions.
func (b *Bus) noteReport(bc *broadcast) {
	if bc.report == nil || !b.topicNames.Varies() {
		return // each report goes to all topics
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range bc.topics {
		resources := bc.report.resources(t.name)
		if bc.isStoredBy(t) {
			t.ledger.settleReport(bc.report, resources)
		} else {
			t.ledger.oweReport(bc.report, resources)
		}
	}
	for resource := range bc.report.everywhere {
		b.reported[bc.report.run+" "+resource] = bc.started
	}
}

// giveUpTopics ends the wait of a report for topics that are not found. Others may exist by now. It
// must be called only if no partition was handed the report.
func (b *Bus) giveUpTopics(bc *broadcast) bool {
	if bc.report == nil || !b.topicNames.Varies() || len(bc.skipped) > 0 || time.Since(bc.started) < broadcastWait {
		return false
	}
	for _, t := range bc.unready {
		b.release(t)
	}
	bc.unready = nil
	return true
}

// reportTopics returns the topics for a report, and sets what each of them gets. The results are
// those of streamTopics. No topics: none may have objects of its scopes, or it has no scopes.
func (b *Bus) reportTopics(bc *broadcast) (names []string, optional, ok bool, err error) {
	r := bc.report
	r.entries = map[string][]int{}
	r.contents = map[string]*encode.Event{}
	r.everywhere = map[string]bool{}
	if name, ok := b.topicNames.Fixed(); ok {
		return []string{name}, false, true, nil
	}
	exist := false // there are topics of its resources
	if b.topicNames.Varies() {
		all, ok := b.existingTopics()
		if !ok {
			return nil, false, false, nil
		}
		exist = b.assignEntries(r, all)
	}
	if !exist {
		err = b.assignOwn(bc)
	}
	names = slices.Sorted(maps.Keys(r.entries))
	if exist {
		names = b.selectTopics(r, names)
	}
	if err == nil {
		err = r.cut(bc.content, names)
	}
	if err != nil {
		return nil, false, false, err
	}
	return names, exist && b.cfg.Create == nil, true, nil
}

// assignEntries assigns each entry to the topics among all that may have objects of its scopes, and
// to those of cluster-scoped objects. It reports whether a topic is of a resource of the report.
func (b *Bus) assignEntries(r *report, all []string) (exist bool) {
	topics := map[*object.Resource]map[string]string{} // by resource and namespace
	for i := range r.scopes {
		s := &r.scopes[i]
		of, ok := topics[s.Resource]
		if !ok {
			of = map[string]string{}
			for _, name := range all {
				if namespace, ok := b.topicNames.NamespaceIn(name, s.Resource); ok {
					of[namespace] = name
				}
			}
			topics[s.Resource] = of
			exist = exist || len(of) > 0
		}
		if clusterScoped, ok := of[""]; ok {
			r.entries[clusterScoped] = append(r.entries[clusterScoped], i)
		}
		if !s.Resource.Namespaced {
			continue
		}
		if namespace, ok := onlyNamespace(s); ok {
			if name, ok := of[namespace]; ok {
				r.entries[name] = append(r.entries[name], i)
			}
			continue
		}
		for namespace, name := range of {
			if namespace != "" && (s.Scope == "" || mayHave(s.Scope, namespace)) {
				r.entries[name] = append(r.entries[name], i)
			}
		}
	}
	return exist
}

// mayHave reports whether a scope may have objects in a namespace, by its name. A scope of several
// rules names the namespaces of each: "pods?any=shop?labelSelector=team=payments|team-*".
func mayHave(scope, namespace string) bool {
	if !consume.ScopeCovers(scope, namespace) {
		return false
	}
	_, rules, several := strings.Cut(strings.Replace(scope, "&any=", "?any=", 1), "?any=")
	if !several {
		return true
	}
	for rule := range strings.SplitSeq(rules, "|") {
		namespaces, _, _ := strings.Cut(rule, "?")
		if consume.ScopeCovers("/"+namespaces, namespace) {
			return true
		}
	}
	return false
}

// onlyNamespace returns the namespace of a scope that is limited to one by its name. It spares most
// scopes the comparison with all topics.
func onlyNamespace(s *object.ScopeReport) (string, bool) {
	limits, ok := strings.CutPrefix(s.Scope, s.Resource.String()+"/")
	if !ok {
		return "", false
	}
	namespace, _, _ := strings.Cut(limits, "?")
	return namespace, namespace != "" && strings.Trim(namespace, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// assignOwn assigns each entry to the topic of its resource, of cluster-scoped objects if the
// topics are those of namespaces.
func (b *Bus) assignOwn(bc *broadcast) error {
	var tooLong error
	for i := range bc.report.scopes {
		own := b.topicNames.AppendOf(nil, bc.report.scopes[i].Resource, "")
		if len(own) > kafkaconfig.MaxTopic { // it has no events of objects either
			tooLong = errTopicName(bc.event, own)
			continue
		}
		bc.report.entries[string(own)] = append(bc.report.entries[string(own)], i)
	}
	if len(bc.report.entries) == 0 {
		return tooLong
	}
	return nil
}

// selectTopics selects the topics for a report from names, with {namespace} in the template:
//
//   - all topics of a resource once an hour, and the first time in a run;
//   - otherwise the topics with an event that no report in them includes, and at least one topic of
//     each entry: that of cluster-scoped objects if it exists, or the first by name.
func (b *Bus) selectTopics(r *report, names []string) []string {
	home := make([]string, len(r.scopes))
	for _, name := range names {
		for _, i := range r.entries[name] {
			if home[i] == "" || name == string(b.topicNames.AppendOf(nil, r.scopes[i].Resource, "")) {
				home[i] = name
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range r.scopes {
		resource := r.scopes[i].Resource.String()
		if at, ok := b.reported[r.run+" "+resource]; !ok || time.Since(at) >= reportAge {
			r.everywhere[resource] = true
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		for _, i := range r.entries[name] {
			if home[i] == name || r.everywhere[r.scopes[i].Resource.String()] {
				return false
			}
		}
		t := b.topics[name]
		return t == nil || !t.ledger.isBehind(r, r.resources(name))
	})
}

// scopesMember begins the last member of a progress event's data. No other text of an event
// contains it, because quotes in text are escaped.
const scopesMember = `"scopes":[`

// cut makes the contents for topics from the whole event: each has the entries of its topic.
func (r *report) cut(whole *encode.Event, names []string) error {
	var head, tail []byte
	var all []json.RawMessage // the entries in the whole event
	made := map[string]*encode.Event{}
	for _, name := range names {
		entries := r.entries[name]
		if len(entries) == len(r.scopes) {
			continue
		}
		key := keyOf(entries)
		if made[key] == nil {
			if all == nil {
				var err error
				head, all, tail, err = splitScopes(whole.Body, len(r.scopes))
				if err != nil {
					return fmt.Errorf("publish %s: %w: %w", whole.ID, publish.ErrRefused, err)
				}
			}
			part := *whole
			part.Body = bytes.Clone(head)
			for n, i := range entries {
				if n > 0 {
					part.Body = append(part.Body, ',')
				}
				part.Body = append(part.Body, all[i]...)
			}
			part.Body = append(part.Body, tail...)
			made[key] = &part
		}
		r.contents[name] = made[key]
	}
	return nil
}

// keyOf returns a text that differs for different entries.
func keyOf(entries []int) string {
	var key []byte
	for _, i := range entries {
		key = binary.AppendUvarint(key, uint64(i))
	}
	return string(key)
}

// splitScopes splits the body of a progress event into its n entries, and what is before and after
// them.
func splitScopes(body []byte, n int) (head []byte, scopes []json.RawMessage, tail []byte, err error) {
	at := bytes.Index(body, []byte(scopesMember))
	if at < 0 {
		return nil, nil, nil, errors.New("its body has no scopes")
	}
	at += len(scopesMember)
	list := json.NewDecoder(bytes.NewReader(body[at-1:]))
	if err := list.Decode(&scopes); err != nil {
		return nil, nil, nil, fmt.Errorf("read the scopes of its body: %w", err)
	}
	if len(scopes) != n {
		return nil, nil, nil, fmt.Errorf("its body has %d scopes instead of %d", len(scopes), n)
	}
	end := at - 1 + int(list.InputOffset())
	return body[:at], scopes, body[end-1:], nil
}
