package definitions

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Requests are the requests of a user to the API server.
type Requests struct {
	Lists   int `json:"lists"`   // of a page each
	Watches int `json:"watches"` // opened, including those that send the objects first
	Others  int `json:"others"`  // discovery, mostly
	// Refused is the number of requests that were answered with 429.
	Refused int `json:"refused"`
	// AtOnce is the highest number of requests in progress at a time: a list until it was answered,
	// a watch until it was open. API Priority and Fairness queues them if there are too many.
	AtOnce int `json:"atOnce"`
	// Busiest is the highest number of requests within one second.
	Busiest int `json:"busiest"`
	// Open watches of our resources, at the end.
	Open int `json:"open"`
	// Watched is the time of the first watch of the last resource.
	Watched time.Time `json:"watched"`
	// Resources that have been watched.
	Resources int `json:"resources"`
	// Early is the number of refused requests that were repeated before Retry-After, a second or
	// more.
	Early int `json:"early"`
}

// record has the fields used of an audit event (audit.k8s.io/v1).
type record struct {
	AuditID    string                    `json:"auditID"`
	Stage      string                    `json:"stage"`
	RequestURI string                    `json:"requestURI"`
	Verb       string                    `json:"verb"`
	User       struct{ Username string } `json:"user"`
	ObjectRef  *struct{ Resource, APIGroup string }
	Response   struct{ Code int } `json:"responseStatus"`
	Received   time.Time          `json:"requestReceivedTimestamp"`
	At         time.Time          `json:"stageTimestamp"`
}

// Requests returns the requests of a user from the time from on.
func (w *World) Requests(name string, from time.Time) (Requests, error) {
	file, err := os.Open(w.audit)
	if err != nil {
		return Requests{}, err
	}
	defer file.Close()
	return read(file, User(name), from)
}

// read reads an audit log.
func read(log io.Reader, user string, from time.Time) (Requests, error) {
	var records []record
	lines := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return count(records), nil // a line without an end is still being written
		}
		if err != nil {
			return Requests{}, err
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return Requests{}, fmt.Errorf("audit log: %w", err)
		}
		if r.User.Username == user && !r.Received.Before(from) {
			records = append(records, r)
		}
	}
}

// count counts the requests in the records.
func count(records []record) (q Requests) {
	var came []time.Time
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	received := map[string]bool{}
	waiting := map[string]bool{}
	open := map[string]string{}
	resources, refused := map[string]time.Time{}, map[string]time.Time{}
	for _, r := range records {
		if !received[r.AuditID] { // its first stage
			received[r.AuditID], waiting[r.AuditID] = true, true
			came = append(came, r.Received)
			edges = append(edges, edge{r.Received, 1})
			switch r.Verb {
			case "list":
				q.Lists++
			case "watch":
				q.Watches++
			default:
				q.Others++
			}
			if at, ok := refused[request(r.RequestURI)]; ok && r.Received.Before(at.Add(time.Second)) {
				q.Early++
			}
			delete(refused, request(r.RequestURI))
		}
		started := r.Stage == "ResponseStarted" && r.Response.Code == http.StatusOK
		if waiting[r.AuditID] && (started || r.Stage == "ResponseComplete" || r.Stage == "Panic") {
			delete(waiting, r.AuditID)
			edges = append(edges, edge{r.At, -1})
		}
		if r.Stage == "ResponseComplete" && r.Response.Code == http.StatusTooManyRequests {
			q.Refused++
			refused[request(r.RequestURI)] = r.At
		}
		if r.Verb != "watch" || r.ObjectRef == nil || !strings.HasSuffix(r.ObjectRef.APIGroup, Suffix) {
			continue
		}
		key := r.ObjectRef.Resource + "." + r.ObjectRef.APIGroup
		switch {
		case started:
			open[r.AuditID] = key
			if _, ok := resources[key]; !ok {
				resources[key] = r.At
				if r.At.After(q.Watched) {
					q.Watched = r.At
				}
			}
		case r.Stage == "ResponseComplete":
			delete(open, r.AuditID)
		}
	}
	q.Open, q.Resources = len(open), len(resources)
	slices.SortFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	now := 0
	for _, e := range edges {
		now += e.step
		q.AtOnce = max(q.AtOnce, now)
	}
	slices.SortFunc(came, time.Time.Compare)
	first := 0
	for i, at := range came {
		for at.Sub(came[first]) >= time.Second {
			first++
		}
		q.Busiest = max(q.Busiest, i-first+1)
	}
	return q
}

// request returns the path of a request and whether it is a watch. A repeated request has the same
// result.
func request(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return uri
	}
	return u.Path + "?watch=" + u.Query().Get("watch")
}
