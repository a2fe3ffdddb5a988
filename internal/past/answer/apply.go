package answer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// Agent is the agent that wrote a record, as far as its configuration says what the record lacks.
type Agent struct {
	// Strips are the paths that it removes from all objects.
	Strips []string
	// Hashes reports whether it replaces redacted values with hashes. These show where the values
	// were.
	Hashes bool
	// Withholds returns the paths that it strips or redacts in objects of a resource.
	Withholds func(resource string) []string
	// Owns reports whether an object is its own: its checkpoint, or the Lease of its election.
	Owns func(resource, namespace, name string) bool
}

// MakeManifests returns objects without the fields that the server sets. It omits objects with
// redacted values, and those from which the agent may have removed values. agent is nil if it is
// not known. toNamespace is the namespace of the manifests, "": that of each object.
func MakeManifests(objects []*timeline.Version, agent *Agent, toNamespace string) (*Manifests, error) {
	if err := canMove(objects, toNamespace); err != nil {
		return nil, err
	}
	a := Manifests{
		agent:       agent,
		removed:     map[string][]string{},
		uids:        map[string]bool{},
		toNamespace: toNamespace,
	}
	for _, v := range objects {
		a.uids[v.UID] = true
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(v, w *timeline.Version) int {
		return cmp.Compare(applyOrder(v.Resource), applyOrder(w.Resource))
	})
	for _, v := range objects {
		name := KindName(v)
		if v.Namespace != "" {
			name += " -n " + v.Namespace
		}
		if err := a.addObject(v, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	a.noteVolumes()
	a.noteDefinitions()
	return &a, nil
}

// CheckOmitted returns the error that objects were omitted, nil if all are there.
func (m *Manifests) CheckOmitted() error {
	var omitted []string
	if len(m.redacted) > 0 {
		omitted = append(omitted,
			"left out, because the record has redacted values of them: "+strings.Join(m.redacted, ", "))
	}
	if len(m.lacking) > 0 {
		omitted = append(omitted,
			"left out, because the agent may have removed values from them (-o yaml prints the rest): "+
				strings.Join(m.lacking, ", "))
	}
	if len(omitted) > 0 {
		return errors.New(strings.Join(omitted, "; "))
	}
	return nil
}

// Manifests are objects to apply, and the names of those that are not complete.
type Manifests struct {
	Objects []*timeline.Version // in the order in which they are applied

	agent   *Agent              // nil if it is not known
	removed map[string][]string // paths, by resource
	uids    map[string]bool     // of all objects

	toNamespace string // "": they keep theirs
	events      int    // that were left out

	redacted, lacking []string
	notes             [noteKinds][]string // the objects that each is about
	claims            []claim
}

// claim is a PersistentVolumeClaim whose volume is known.
type claim struct{ name, volume string }

// note is what people have to know of some of the objects.
type note int

const (
	withoutOwners note = iota
	withoutEphemeral
	withoutAddress
	madeByServer
	madeByController
	wasDeleted
	needsVolume
	withoutVolume
	withoutPorts
	refersToOld
	needsDefinition
	noteKinds
)

func (n note) String() string {
	switch n {
	case withoutOwners:
		return "without owner references, because the owners may have been recreated"
	case withoutEphemeral:
		return "without ephemeral containers, which an apply cannot create"
	case withoutAddress:
		return "without the cluster IP, because the record does not show whether the server assigned it: add spec.clusterIP if you need it"
	case madeByServer:
		return "left out, because the control plane or a kubelet makes them"
	case madeByController:
		return "left out, because a controller makes them from others of these objects"
	case wasDeleted:
		return "were being deleted at that moment"
	case needsVolume:
		return "bind to the volumes that they had. One that is Released has to be freed first " +
			`(kubectl patch pv NAME --type merge -p '{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}')`
	case withoutVolume:
		return "without the volume, which belongs to the claim in the old namespace: they get a new, empty one"
	case withoutPorts:
		return "without cluster IPs and node ports, which belong to the Services in the old namespace"
	case refersToOld:
		return "still refer to the old namespace"
	case needsDefinition:
		return "need a CustomResourceDefinition that is among the objects: kubectl may not find it yet, then apply once more"
	}
	return ""
}

// Notes returns what people have to know of the objects, a line each.
func (m *Manifests) Notes() []string {
	var out []string
	if m.events > 0 {
		out = append(out, "left out, because Events only report what happened: "+wording.Count(m.events))
	}
	if m.toNamespace != "" && len(m.Objects) > 0 {
		out = append(out, fmt.Sprintf("for namespace %s, which has to exist", m.toNamespace))
	}
	for n, names := range m.notes {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("%s: %s", note(n), strings.Join(names, ", ")))
		}
	}
	switch {
	case len(m.Objects) == 0:
	case m.agent == nil:
		out = append(out,
			"objects may lack values that the agent removed: name its configuration with --config, or run 'kubectl diff' before you apply")
	default:
		out = append(out, "complete by the redact and strip rules of --config, if these were the agent's at that moment")
	}
	return out
}

// noteVolumes notes the claims. Their volumes may still exist, and an apply does not make them
// Available again.
func (m *Manifests) noteVolumes() {
	for _, c := range m.claims {
		m.notes[needsVolume] = append(m.notes[needsVolume], fmt.Sprintf("%s (%s)", c.name, c.volume))
	}
}

// noteDefinitions notes the resources whose definitions are among the objects.
func (m *Manifests) noteDefinitions() {
	for _, v := range m.Objects {
		isDefined := slices.ContainsFunc(m.Objects, func(d *timeline.Version) bool {
			return d.Resource == definitions && d.Name == v.Resource
		})
		if isDefined && !slices.Contains(m.notes[needsDefinition], v.Resource) {
			m.notes[needsDefinition] = append(m.notes[needsDefinition], v.Resource)
		}
	}
}

func (m *Manifests) addObject(v *timeline.Version, name string) error {
	if isOfEvents(v.Resource) {
		m.events++
		return nil
	}
	if v.Redacted() {
		m.redacted = append(m.redacted, name)
		return nil
	}
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(string(v.After)))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return err
	}
	one := manifest{resource: v.Resource, object: o}
	if n, isMade := m.isMade(&one, v); isMade {
		m.notes[n] = append(m.notes[n], name)
		return nil
	}
	if lacks, err := m.lacks(v.Resource, o); err != nil || len(lacks) > 0 {
		m.lacking = append(m.lacking, fmt.Sprintf("%s (%s)", name, strings.Join(lacks, ", ")))
		return err
	}
	one.reduce()
	if m.toNamespace != "" {
		one.move(m.toNamespace)
	}
	for _, n := range one.notes {
		about := name
		if n == withoutAddress {
			about += " (" + one.address + ")"
		}
		if n == refersToOld {
			about += " (" + strings.Join(one.refers, ", ") + ")"
		}
		m.notes[n] = append(m.notes[n], about)
	}
	if one.volume != "" {
		m.claims = append(m.claims, claim{name, one.volume})
	}
	raw, err := json.Marshal(one.object)
	m.Objects = append(m.Objects, &timeline.Version{Object: v.Object, After: raw, SaysRedacted: v.SaysRedacted})
	return err
}

// isMade reports whether something makes the object, and the note about it.
func (m *Manifests) isMade(one *manifest, v *timeline.Version) (note, bool) {
	if one.isMadeByServer(v) {
		return madeByServer, true
	}
	return madeByController, m.uids[one.controller()]
}

// lacks returns the paths at which the agent may have removed a value from an object that has to be
// in a manifest.
func (m *Manifests) lacks(resource string, o map[string]any) ([]string, error) {
	if m.agent == nil {
		return nil, nil
	}
	paths, known := m.removed[resource]
	if !known {
		unneeded, err := object.NewCutter(
			append(object.Copies(), "status", "metadata.creationTimestamp", "metadata.generation",
				"metadata.ownerReferences", "metadata.selfLink",
				`metadata.annotations["deployment.kubernetes.io/revision"]`))
		if err != nil {
			return nil, err
		}
		paths = slices.DeleteFunc(slices.Clone(m.agent.Strips), func(path string) bool {
			// of controllers
			return strings.HasPrefix(path, "metadata.annotations") || strings.HasPrefix(path, "metadata.labels")
		})
		if !m.agent.Hashes { // a hash would be in the object
			paths = m.agent.Withholds(resource)
		}
		slices.Sort(paths)
		paths = slices.DeleteFunc(slices.Compact(paths), unneeded.Removes)
		m.removed[resource] = paths
	}
	var lacks []string
	for _, path := range paths {
		may, err := object.MayLack(o, path)
		if err != nil {
			return nil, err
		}
		if may {
			lacks = append(lacks, path)
		}
	}
	return lacks, nil
}
