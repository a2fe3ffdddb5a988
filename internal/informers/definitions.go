package informers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// What is not Kubernetes' own comes and goes while the set runs: CustomResourceDefinitions, and APIs that other servers
// serve (APIServices). The set follows both, by watches of its own, of which it keeps names and uids: what is defined is
// observed from its birth (births.go), what is defined no longer is ended (burials.go), and whatever changes has discovery
// look at once. Discovery remains as a check, and is all there is where these two may not be read.

const (
	// wakeSettles is for how long changes are gathered before discovery looks.
	wakeSettles = 100 * time.Millisecond
	// discoverApart is how far discoveries are apart at least, however much changes.
	discoverApart = time.Second
	// echoes is how many times discovery looks again, discoverApart apart, behind a change: what is served follows what is
	// defined after a moment.
	echoes = 3
	// knownWithin is how long the first discovery waits to learn which definitions there are.
	knownWithin = 10 * time.Second
	// noticedWithin is how long a discovery waits for the definition of what it has found to come on the watch.
	noticedWithin = 5 * time.Second
	// deletedFor is for how long it is remembered that a definition was deleted: an informer of it may begin after that.
	deletedFor = 10 * time.Minute
)

// definition is a CustomResourceDefinition, as far as it matters here.
type definition struct {
	uid         string
	generation  int64
	storage     string // the version in which objects are stored, "": not known
	ending      bool   // it is being deleted
	established bool
	made        uint64                 // its first resourceVersion, 0: it was there before
	born        uint64                 // the same once it is established, 0 also where that is dealt with
	since       time.Time              // when that was seen
	served      *selection.APIResource // what it serves, while born is not 0
}

// definitions are those that there are.
type definitions struct {
	set     *Set
	woken   chan struct{} // of one element: discovery is to look
	known   chan struct{} // closed when it is known what there is, or that nobody tells
	changed chan struct{} // of one element: the rules are others
	unheard chan vanished // whose deletion nobody took note of; what finds no room is found again
	last    time.Time     // of discovery's goroutine: when it looked last
	echo    int           // and how many times it is to look again

	mu       sync.Mutex
	moved    chan struct{}          // closed and replaced when what is below changes
	crds     map[string]*definition // by name: plural.group
	deleted  map[string]time.Time   // names of definitions that were deleted, and not made again, while the set ran
	at       uint64                 // resourceVersion of the list that began it, 0: it is not known what there is
	services map[string]apiService  // by name: version.group
	registry map[string]bool        // names of a list of APIServices that is being read
	// crdsTold and servicesTold: it is known which there are, or that this cannot be known now. servicesKnown: the former.
	crdsTold, servicesTold, servicesKnown bool
	listing                               map[string]definition // those of a list that is being read, by name
	early                                 bool                  // nothing was known before: what the list has was there
}

func newDefinitions(s *Set) *definitions {
	return &definitions{
		set: s, woken: make(chan struct{}, 1), known: make(chan struct{}), changed: make(chan struct{}, 1), unheard: make(chan vanished, 16), moved: make(chan struct{}),
		crds: map[string]*definition{}, deleted: map[string]time.Time{}, services: map[string]apiService{}, early: true,
	}
}

// run follows definitions until ctx ends. begin begins the informers of what is born.
func (d *definitions) run(ctx context.Context, begin func([]*running)) error {
	for !d.set.takesForeign() {
		d.tells(&d.crdsTold)
		d.tells(&d.servicesTold)
		select {
		case <-d.changed:
		case <-ctx.Done():
			return nil
		}
	}
	b := &burials{set: d.set, begin: begin}
	defer b.wait()
	crds := &lookout{
		client: d.set.client, log: d.set.o.Log,
		resource: object.Resource{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions"},
		// Schemas may make megabytes of a list of a thousand: names and uids will do. The watch is of whole objects.
		accept: apiserver.MetadataOnly,
		begin:  d.beginList, item: d.listed, failed: func() { d.tells(&d.crdsTold) },
		end: func(rv uint64) {
			gone, changed := d.endList(rv)
			for _, name := range changed {
				d.set.newEdition(name, true)
			}
			for name, at := range gone {
				b.add(ctx, name, at)
			}
		},
		event: func(typ watch.EventType, raw []byte) error {
			name, rv, became, err := d.defined(typ, raw)
			switch {
			case err != nil:
				return err
			case became == definitionGone:
				b.add(ctx, name, rv)
			case became != definitionSame:
				d.set.newEdition(name, became == definitionStored)
				fallthrough
			default:
				d.set.nudge(name)
			}
			begin(d.set.bear())
			d.wake()
			return nil
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { d.servicesLookout().run(ctx) })
	wg.Go(func() {
		for {
			select {
			case v := <-d.unheard:
				b.add(ctx, v.name, v.at)
			case <-ctx.Done():
				return
			}
		}
	})
	crds.run(ctx)
	wg.Wait()
	return nil
}

// rulesChanged has it looked again if definitions matter.
func (d *definitions) rulesChanged() {
	select {
	case d.changed <- struct{}{}:
	default: // it will look
	}
}

// tells notes that it is known which definitions (APIServices) there are, or that this cannot be known now.
func (d *definitions) tells(told *bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !*told {
		if *told = true; d.crdsTold && d.servicesTold {
			close(d.known)
		}
	}
}

// wake has discovery look soon.
func (d *definitions) wake() {
	select {
	case d.woken <- struct{}{}:
	default: // it will
	}
}

// await waits until it is known which definitions there are: what is discovered before that could not be told from what is
// born.
func (d *definitions) await(ctx context.Context) {
	t := time.NewTimer(knownWithin)
	defer t.Stop()
	select {
	case <-d.known:
	case <-t.C:
	case <-ctx.Done():
	}
	d.last = time.Now()
}

// rest waits until it is time to discover again: after wait, or sooner where something has changed; false: ctx ended first.
func (d *definitions) rest(ctx context.Context, wait time.Duration) bool {
	if d.echo > 0 {
		wait = min(wait, discoverApart)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		d.echo = max(0, d.echo-1)
	case <-d.woken:
		d.echo = echoes
		if !retry.Sleep(ctx, max(wakeSettles, discoverApart-time.Since(d.last))) {
			return false
		}
		select {
		case <-d.woken: // gathered
		default:
		}
	}
	d.last = time.Now()
	return true
}

// touch tells those who wait that something is different. The caller holds mu.
func (d *definitions) touch() {
	close(d.moved)
	d.moved = make(chan struct{})
	d.set.mu.Notify()
}

func (d *definitions) beginList() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listing = map[string]definition{}
}

// listed takes the metadata of one definition of a list.
func (d *definitions) listed(raw []byte) error {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listing[m.Name] = definition{uid: string(m.UID), generation: m.Generation, ending: m.DeletionTimestamp != nil, established: true}
	return nil
}

// endList takes a list at resourceVersion rv and returns what is gone by then, and what has changed. Of what is new nobody has seen
// the birth.
func (d *definitions) endList(rv uint64) (gone map[string]uint64, changed []string) {
	d.mu.Lock()
	gone = map[string]uint64{}
	for name, was := range d.crds {
		if d.listing[name].uid != was.uid {
			gone[name] = rv
			d.remove(name)
		}
	}
	for name, now := range d.listing {
		delete(d.deleted, name)
		if was := d.crds[name]; was == nil {
			d.crds[name] = &now
		} else if was.follows(&now) {
			changed = append(changed, name)
		}
	}
	again := !d.early
	d.listing, d.at, d.early = nil, rv, false
	d.touch()
	d.mu.Unlock()
	d.tells(&d.crdsTold)
	if again {
		d.wake()
	}
	return gone, changed
}

// remove notes that a definition was deleted. The caller holds mu.
func (d *definitions) remove(name string) {
	delete(d.crds, name)
	now := time.Now()
	for of, at := range d.deleted {
		if now.Sub(at) > deletedFor {
			delete(d.deleted, of)
		}
	}
	d.deleted[name] = now
}

// uidOf is the uid of the definition of a resource, "": there is none, or none is known.
func (d *definitions) uidOf(r *object.Resource) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.crds[r.String()]; c != nil && !d.isAggregated(r) {
		return c.uid
	}
	return ""
}

// follows takes what is known of a definition now, and tells if what it defines has changed. That it is to be deleted is a
// generation, too. Where that has changed twice at once, it is taken for a change.
func (d *definition) follows(now *definition) (changed bool) {
	same := d.generation
	if now.ending && !d.ending {
		same++
	}
	changed = now.generation > same
	d.established = d.established || now.established // while nobody watched
	d.generation, d.ending, d.storage = now.generation, now.ending, now.storage
	return changed
}

// customResource is what a CustomResourceDefinition says of what it defines.
type customResource struct {
	Metadata struct {
		Name              string  `json:"name"`
		UID               string  `json:"uid"`
		ResourceVersion   uint64  `json:"resourceVersion,string"`
		Generation        int64   `json:"generation"`
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (c *customResource) established() bool {
	for _, cond := range c.Status.Conditions {
		if cond.Type == "Established" {
			return cond.Status == "True"
		}
	}
	return false
}

// storage is the version in which objects are stored.
func (c *customResource) storage() string {
	for _, v := range c.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// served is what the API server serves of it, the preferred version first: as discovery will say a moment later.
func (c *customResource) served() *selection.APIResource {
	out := &selection.APIResource{Group: c.Spec.Group, Name: c.Spec.Names.Plural}
	for _, v := range c.Spec.Versions {
		if v.Served {
			out.Versions = append(out.Versions, object.Resource{
				Group: c.Spec.Group, Version: v.Name, Name: c.Spec.Names.Plural, Kind: c.Spec.Names.Kind, Namespaced: c.Spec.Scope == "Namespaced",
			})
		}
	}
	slices.SortStableFunc(out.Versions, func(a, b object.Resource) int { return version.CompareKubeAwareVersionStrings(b.Version, a.Version) })
	return out
}

// what became of a definition by an event
type became uint8

const (
	definitionSame became = iota
	definitionChanged
	definitionStored // changed: objects are stored in another version
	definitionGone
)

// defined takes one event of a definition: its name, resourceVersion, and what became of it.
func (d *definitions) defined(typ watch.EventType, raw []byte) (name string, rv uint64, what became, err error) {
	var c customResource
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", 0, definitionSame, fmt.Errorf("definition: %w", err)
	}
	name, rv = c.Metadata.Name, c.Metadata.ResourceVersion
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.touch()
	d.at = max(d.at, rv)
	if typ == watch.Deleted {
		d.remove(name)
		return name, rv, definitionGone, nil
	}
	delete(d.deleted, name)
	now := definition{
		uid: c.Metadata.UID, generation: c.Metadata.Generation, ending: c.Metadata.DeletionTimestamp != nil, storage: c.storage(),
	}
	was := d.crds[name]
	if was == nil || was.uid != now.uid {
		if typ == watch.Added {
			now.made = rv
		}
		was = &now
		d.crds[name] = was
	} else {
		stored := was.storage
		switch changed := was.follows(&now); {
		case changed && stored != now.storage: // where that was not known, a watch is opened once too often
			what = definitionStored
		case changed:
			what = definitionChanged
		}
	}
	if !was.established && c.established() {
		was.established, was.born, was.since = true, cmp.Or(was.made, rv), time.Now()
	}
	if was.born != 0 {
		was.served = c.served()
	}
	return name, rv, what, nil
}

// notice waits until the definitions of what was discovered have come on the watch, too: then it is known since when there is
// something of them. It asks for those of which nothing is known.
func (d *definitions) notice(ctx context.Context, all []selection.APIResource) {
	var missing []*object.Resource
	d.mu.Lock()
	if d.at != 0 {
		for i := range all {
			r := &all[i].Versions[0]
			if !ownGroup(r.Group) && !d.isAggregated(r) && d.crds[r.String()] == nil {
				missing = append(missing, r)
			}
		}
	}
	d.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noticedWithin)
	defer cancel()
	for _, r := range missing {
		if !d.isDefined(ctx, r.String()) {
			continue
		}
		for {
			d.mu.Lock()
			known, moved := d.crds[r.String()] != nil && d.crds[r.String()].established, d.moved
			d.mu.Unlock()
			if known {
				break
			}
			select {
			case <-moved:
			case <-ctx.Done():
				return // it is read as if it had always been there
			}
		}
	}
}

// isDefined asks the API server for a definition.
func (d *definitions) isDefined(ctx context.Context, name string) bool {
	l := &lookout{
		client: d.set.client, accept: apiserver.MetadataOnly,
		resource: object.Resource{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions"},
	}
	found := false
	l.item = func([]byte) error { found = true; return nil }
	_, err := l.page(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	return err == nil && found
}

// isEstablished tells if there is a definition of that name, which is served.
func (d *definitions) isEstablished(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.crds[name]
	return c != nil && c.established
}

// bornAt is the resourceVersion behind which the first object of a resource can be, and when that was seen; 0: it is not known.
func (d *definitions) bornAt(r *object.Resource) (uint64, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.crds[r.String()]; c != nil {
		return c.born, c.since
	}
	return 0, time.Time{}
}

// isGone reports, of a resource that is not served, whether it came from a definition that does not exist any more: from the one
// with that uid, or from one that was deleted while the set ran. at is the resourceVersion for which that is known. A resource that
// another server serves may come back.
func (d *definitions) isGone(r *object.Resource, uid string) (at uint64, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == 0 || !d.servicesKnown || d.crds[r.String()] != nil {
		return 0, false
	}
	if _, deleted := d.deleted[r.String()]; uid == "" && !deleted {
		return 0, false
	}
	for name, s := range d.services {
		if _, group, _ := strings.Cut(name, "."); group == r.Group && s.aggregated {
			return 0, false
		}
	}
	return d.at, true
}
