package apiview

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// View is the objects of one moment.
type View struct {
	moment    timeline.Moment
	now       time.Time   // the time to which ages are relative
	again     time.Time   // as Options.Again
	version   string      // of the API server: "v1.37.1"; "": the record does not say it
	resources []*resource // sorted by group and plural
	replay    *replay     // of what follows the moment; nil: nothing
}

// resource is the objects of one resource in one API version.
type resource struct {
	kind
	*content
	columns *columns
	other   *otherVersion // nil: objects are served as they are in the record
}

// content is the objects of one resource of the record. The versions in which it is served share
// it.
type content struct {
	name     string   // as the record has it: "events", "deployments.apps"
	first    list     // of the moment
	log      []change // what a replay shows after it, by resourceVersion
	warnings []string
	history  *uint32 // how often etcd had been restored, nil: there are no objects
	// redacted has the objects that Version.Redacted reports, of the moment and of the log. The
	// value is true for a release of Helm.
	redacted map[*object.Object]bool
	// redactedUIDs has the uids of the objects in redacted.
	redactedUIDs func() map[string]bool
	// lost has the keys of objects of the moment whose content is not in the record.
	lost map[string]bool

	mu   sync.Mutex
	last *list // the newest one that was asked for; nil: first
}

// list is the objects of a resource after a number of changes of its log.
type list struct {
	objects []*object.Object // sorted by Ref.Key, which is the order of etcd
	version uint64           // the resourceVersion
	shown   int              // changes
}

// Options of a View.
type Options struct {
	// Now is the time to which ages are relative.
	Now time.Time
	// Again is the time after which the record may say more about the moment, so that a Server
	// reads it again; zero: the moment is final.
	Again time.Time
	// Version is the version of the API server at the moment; "": that of the state.
	Version string
	// Warn returns what to say about objects of a scope, none if they are certain. Clients show it
	// to people.
	Warn func(*certainty.Scope) []string
}

// NewView returns the View of a state. The state is not needed afterwards.
func NewView(s *timeline.State, o Options) *View {
	v := &View{
		moment:  s.Moment(),
		now:     o.Now,
		again:   o.Again,
		version: cmp.Or(o.Version, s.APIServerVersion()),
	}
	scopes := s.Scopes()
	var names []string
	for i := range scopes {
		names = append(names, scopes[i].Resource)
	}
	byResource := map[string][]*timeline.Version{}
	for _, version := range s.Objects() {
		byResource[version.Resource] = append(byResource[version.Resource], version)
		names = append(names, version.Resource)
	}
	slices.Sort(names)
	crds := definitions(byResource["customresourcedefinitions.apiextensions.k8s.io"])
	for _, name := range slices.Compact(names) {
		versions := byResource[name]
		k, ok := kindOf(name, versions, crds[name])
		if !ok {
			continue
		}
		r := newResource(name, &k, crds[name])
		r.add(versions)
		for i := range scopes {
			if scopes[i].Resource != name {
				continue
			}
			r.first.version = max(r.first.version, number(scopes[i].CompleteUpTo().ResourceVersion))
			if o.Warn != nil {
				r.warnings = append(r.warnings, o.Warn(&scopes[i])...)
			}
		}
		if rv, _, ok := v.moment.ResourceVersion(); ok {
			r.first.version = rv
		}
		r.first.version = max(r.first.version, 1)
		v.resources = append(v.resources, r)
	}
	v.addVersions()
	return v
}

func newResource(name string, k *kind, crd *definition) *resource {
	c := &content{name: name, redacted: map[*object.Object]bool{}, lost: map[string]bool{}}
	c.redactedUIDs = sync.OnceValue(func() map[string]bool {
		uids := map[string]bool{}
		for o := range c.redacted {
			uids[o.Ref.UID] = true
		}
		return uids
	})
	return &resource{kind: *k, content: c, columns: columnsOf(k, crd)}
}

func (v *View) sort() {
	slices.SortFunc(v.resources, func(a, b *resource) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.plural, b.plural))
	})
}

// add packs the objects of the resource.
func (r *resource) add(versions []*timeline.Version) {
	p := &packer{
		resource: &object.Resource{
			Group:      r.group,
			Version:    r.apiVersion,
			Name:       r.plural,
			Kind:       r.kind.name,
			Namespaced: r.namespaced,
		},
		redacted: r.redacted,
	}
	for _, v := range versions {
		if v.After == nil {
			r.lost[object.NewRef(p.resource, v.Namespace, v.Name, v.UID).Key] = true
			continue
		}
		o := p.pack(v, v.After)
		history := v.History // a pointer into v would keep its content
		r.history = &history
		r.first.version = max(r.first.version, o.ResourceVersion)
		r.first.objects = append(r.first.objects, o)
	}
	slices.SortFunc(r.first.objects, func(a, b *object.Object) int { return strings.Compare(a.Ref.Key, b.Ref.Key) })
	if len(r.lost) > 0 {
		r.warnings = append(r.warnings,
			strconv.Itoa(len(r.lost))+" "+r.String()+" existed whose content is not in the record")
	}
}

// packer packs the objects of one resource.
type packer struct {
	resource *object.Resource
	redacted map[*object.Object]bool // as content.redacted
	codec    *object.Codec
	sample   timeline.Version // the last one, without its content; only a Log sets it
}

func (p *packer) pack(v *timeline.Version, body []byte) *object.Object {
	if v.Resource == "secrets" {
		body = encodeRedacted(body)
	}
	if p.codec == nil {
		p.codec = object.NewCodec(body)
	}
	o := object.New(object.NewRef(p.resource, v.Namespace, v.Name, v.UID), number(v.ResourceVersion), 0, p.codec, body)
	if v.Redacted() {
		p.redacted[o] = isRelease(v)
	}
	return o
}

// key returns the key of an object of the content.
func (c *content) key(namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return c.name + "/" + name
}

// find returns an object, nil if it does not exist.
func (l *list) find(key string) *object.Object {
	i, ok := l.index(key)
	if !ok {
		return nil
	}
	return l.objects[i]
}

// index returns where an object is, or would be.
func (l *list) index(key string) (int, bool) {
	return slices.BinarySearchFunc(l.objects, key, func(o *object.Object, key string) int {
		return strings.Compare(o.Ref.Key, key)
	})
}

// resource returns a resource in an API version, nil if the view does not have it.
func (v *View) resource(group, version, plural string) *resource {
	for _, r := range v.resources {
		if r.group == group && r.apiVersion == version && r.plural == plural {
			return r
		}
	}
	return nil
}

// isOutdated reports whether the moment was not final when it was read, and may be so by now.
func (v *View) isOutdated(now time.Time) bool { return !v.again.IsZero() && !now.Before(v.again) }

// Empty reports whether the view has no resource.
func (v *View) Empty() bool { return len(v.resources) == 0 }

// encodeRedacted returns a Secret whose redacted values are base64, as every client expects of its
// data.
func encodeRedacted(secret []byte) []byte {
	if !strings.Contains(string(secret), `"`+object.RedactedPrefix) {
		return secret
	}
	var members map[string]json.RawMessage
	var data map[string]any
	if json.Unmarshal(secret, &members) != nil || json.Unmarshal(members["data"], &data) != nil {
		return secret
	}
	for key, value := range data {
		if text, ok := value.(string); ok && strings.HasPrefix(text, object.RedactedPrefix) {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	var err error
	members["data"], err = json.Marshal(data)
	if err != nil {
		return secret
	}
	if out, err := json.Marshal(members); err == nil {
		return out
	}
	return secret
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
