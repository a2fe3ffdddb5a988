package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// askAll asks the binary for everything at the version or the time of a LIST, and returns a reply
// for each topic that was listed.
func (q *inquiry) askAll(t *testing.T, s *sight, byTime, early bool) []*reply {
	t.Helper()
	moment := (&reply{sight: s, byTime: byTime}).moment()
	a := ask(t, append([]string{"all", "--at", moment}, q.where()...)...)
	var replies []*reply
	for topic := range s.lists {
		replies = append(replies, topic.reply(t, &a, s, byTime, early))
	}
	return replies
}

// where returns the arguments that name the record.
func (q *inquiry) where() []string {
	if q.config != "" {
		return []string{"--config", q.config}
	}
	return []string{"--bus", q.bus}
}

// askOne asks for one topic alone.
func (q *inquiry) askOne(t *testing.T, topic *topic, s *sight, byTime, early bool) *reply {
	t.Helper()
	moment := (&reply{sight: s, byTime: byTime}).moment()
	a := ask(t, append([]string{topic.resource, "-n", topic.namespace, "--at", moment}, q.where()...)...)
	return topic.reply(t, &a, s, byTime, early)
}

// reply returns the part of an answer that is about the topic.
func (p *topic) reply(t *testing.T, a *pastAnswer, s *sight, byTime, early bool) *reply {
	t.Helper()
	if p.class == "events" {
		early = early || time.Since(s.at) < 12*time.Minute
	}
	if p.isQuietTopic() {
		early = early || !p.isSettled(s.at)
	}
	class := p.class
	if !byTime {
		class = cmp.Or(p.classByVersion, class)
	}
	r := &reply{
		class:   class,
		topic:   p,
		sight:   s,
		byTime:  byTime,
		early:   early,
		objects: map[oracle.ObjectKey]*oracle.Version{},
	}
	for i := range a.Kubecdc.Scopes {
		if scope := &a.Kubecdc.Scopes[i]; p.covers(scope) {
			r.scopes = append(r.scopes, *scope)
		}
	}
	for _, item := range a.Items {
		var head struct {
			Kind     string
			Metadata struct{ Namespace string }
		}
		if err := json.Unmarshal(item, &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind != p.kind || head.Metadata.Namespace != p.namespace {
			continue
		}
		o, err := oracle.DecodeObject(item)
		if err != nil {
			t.Fatal(err)
		}
		v, err := oracle.NewVersion(p.resource, 0, o)
		if err != nil {
			t.Fatal(err)
		}
		r.objects[v.Key] = v
	}
	return r
}

// settles is how long an answer about a moment may change (timeline.MaxLag), and what a question
// takes on a slow machine.
const settles = 130 * time.Second

// askSeen asks for all LISTs: by the version of each, and by the time of those around which nobody
// wrote. One question follows the other, so that other tests have a processor.
func (q *inquiry) askSeen(t *testing.T) []*reply {
	t.Helper()
	var replies []*reply
	seen := q.seen()
	most := 1 + len(seen)/300 // A question takes a while.
	for n, s := range seen {
		if n/2%most != 0 {
			continue
		}
		early := time.Since(s.at) < settles
		replies = append(replies, q.askAll(t, s, false, early)...)
		if !s.calm {
			continue
		}
		replies = append(replies, q.askAll(t, s, true, early)...)
		if n%3 != 0 {
			continue
		}
		one := q.topics[n/2%len(q.topics)]
		replies = append(replies, q.askOne(t, one, s, true, early))
		if !one.isOwn { // Such a question is refused.
			replies = append(replies, q.askOne(t, one, s, false, early))
		}
	}
	return replies
}

// askedEnough fails the test if too little was asked: 200 LISTs by version, and 100 by time. A LIST
// that is asked for twice counts once.
func askedEnough(t *testing.T, replies []*reply) {
	t.Helper()
	type list struct {
		topic *topic
		sight *sight
	}
	byVersion, byTime := map[list]bool{}, map[list]bool{}
	for _, r := range replies {
		of := byVersion
		if r.byTime {
			of = byTime
		}
		of[list{r.topic, r.sight}] = true
	}
	text := fmt.Sprintf("%d LISTs by version, %d by time, %d questions", len(byVersion), len(byTime), len(replies))
	if len(byVersion) < 200 || len(byTime) < 100 {
		t.Errorf("too little: %s", text)
	}
	t.Log(text)
}
