package answer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// printForApply prints objects without the fields that the server sets. It omits objects with
// redacted values, and those from which the agent may have removed values, and returns an error.
func (q *Question) printForApply(objects []*timeline.Version, agent *config.Config, toNamespace string) error {
	if err := canMove(objects, toNamespace); err != nil {
		return err
	}
	a := manifests{agent: agent, removed: map[string][]string{}, uids: map[string]bool{}, toNamespace: toNamespace}
	for _, v := range objects {
		a.uids[v.UID] = true
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(v, w *timeline.Version) int {
		return cmp.Compare(applyOrder(v.Resource), applyOrder(w.Resource))
	})
	for _, v := range objects {
		name := kindName(v)
		if v.Namespace != "" {
			name += " -n " + v.Namespace
		}
		if err := a.add(v, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := q.printDocuments(a.out); err != nil {
		return err
	}
	a.noteVolumes()
	a.noteDefinitions()
	a.say(q.Stderr)
	switch {
	case len(a.out) == 0:
	case agent == nil:
		fmt.Fprintln(q.Stderr,
			"objects may lack values that the agent removed: name its configuration with --config, or run 'kubectl diff' before you apply")
	default:
		fmt.Fprintln(q.Stderr,
			"complete by the redact and strip rules of --config, if these were the agent's at that moment")
	}
	var omitted []string
	if len(a.redacted) > 0 {
		omitted = append(omitted,
			"left out, because the record has redacted values of them: "+strings.Join(a.redacted, ", "))
	}
	if len(a.lacking) > 0 {
		omitted = append(omitted,
			"left out, because the agent may have removed values from them (-o yaml prints the rest): "+
				strings.Join(a.lacking, ", "))
	}
	if len(omitted) > 0 {
		return errors.New(strings.Join(omitted, "; "))
	}
	return nil
}

// manifests are objects to apply, and the names of those that are not complete.
type manifests struct {
	agent   *config.Config      // nil if it is not known
	removed map[string][]string // paths, by resource
	uids    map[string]bool     // of all objects

	out         []*timeline.Version
	toNamespace string // "": they keep theirs
	events      int    // that were left out

	redacted, lacking []string
	notes             [noteKinds][]string // the objects that each is about
	claims            []claim
}

// claim is a PersistentVolumeClaim of which the volume is known.
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

// say prints the notes.
func (a *manifests) say(w io.Writer) {
	if a.events > 0 {
		fmt.Fprintf(w, "left out, because Events only report what happened: %s\n", wording.Count(a.events))
	}
	if a.toNamespace != "" && len(a.out) > 0 {
		fmt.Fprintf(w, "for namespace %s, which has to exist\n", a.toNamespace)
	}
	for n, names := range a.notes {
		if len(names) > 0 {
			fmt.Fprintf(w, "%s: %s\n", note(n), strings.Join(names, ", "))
		}
	}
}

// noteVolumes notes the claims. Their volumes may still exist, and an apply does not make them
// Available again.
func (a *manifests) noteVolumes() {
	for _, c := range a.claims {
		a.notes[needsVolume] = append(a.notes[needsVolume], fmt.Sprintf("%s (%s)", c.name, c.volume))
	}
}

// noteDefinitions notes the resources whose definitions are among the objects.
func (a *manifests) noteDefinitions() {
	for _, v := range a.out {
		isDefined := slices.ContainsFunc(a.out, func(d *timeline.Version) bool {
			return d.Resource == definitions && d.Name == v.Resource
		})
		if isDefined && !slices.Contains(a.notes[needsDefinition], v.Resource) {
			a.notes[needsDefinition] = append(a.notes[needsDefinition], v.Resource)
		}
	}
}

func (a *manifests) add(v *timeline.Version, name string) error {
	if isOfEvents(v.Resource) {
		a.events++
		return nil
	}
	if v.Redacted() {
		a.redacted = append(a.redacted, name)
		return nil
	}
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(string(v.After)))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return err
	}
	m := manifest{resource: v.Resource, object: o}
	if n, isMade := a.isMade(&m, v); isMade {
		a.notes[n] = append(a.notes[n], name)
		return nil
	}
	if lacks, err := a.lacks(v.Resource, o); err != nil || len(lacks) > 0 {
		a.lacking = append(a.lacking, fmt.Sprintf("%s (%s)", name, strings.Join(lacks, ", ")))
		return err
	}
	m.reduce()
	if a.toNamespace != "" {
		m.move(a.toNamespace)
	}
	for _, n := range m.notes {
		about := name
		if n == withoutAddress {
			about += " (" + m.address + ")"
		}
		if n == refersToOld {
			about += " (" + strings.Join(m.refers, ", ") + ")"
		}
		a.notes[n] = append(a.notes[n], about)
	}
	if m.volume != "" {
		a.claims = append(a.claims, claim{name, m.volume})
	}
	raw, err := json.Marshal(m.object)
	a.out = append(a.out, &timeline.Version{Object: v.Object, After: raw, SaysRedacted: v.SaysRedacted})
	return err
}

// isMade reports whether something makes the object, and the note about it.
func (a *manifests) isMade(m *manifest, v *timeline.Version) (note, bool) {
	if m.isMadeByServer(v) {
		return madeByServer, true
	}
	return madeByController, a.uids[m.controller()]
}

// lacks returns the paths at which the agent may have removed a value from an object that has to be
// in a manifest.
func (a *manifests) lacks(resource string, o map[string]any) ([]string, error) {
	if a.agent == nil {
		return nil, nil
	}
	paths, known := a.removed[resource]
	if !known {
		unneeded, err := object.NewCutter(
			append(object.Copies(), "status", "metadata.creationTimestamp", "metadata.generation",
				"metadata.ownerReferences", "metadata.selfLink",
				`metadata.annotations["deployment.kubernetes.io/revision"]`))
		if err != nil {
			return nil, err
		}
		paths = slices.DeleteFunc(slices.Clone(a.agent.Strip), func(path string) bool {
			// of controllers
			return strings.HasPrefix(path, "metadata.annotations") || strings.HasPrefix(path, "metadata.labels")
		})
		if a.agent.Redaction.Mode == config.RedactRemove { // a hash would be in the object
			paths = withheld(a.agent, resource)
		}
		slices.Sort(paths)
		paths = slices.DeleteFunc(slices.Compact(paths), unneeded.Removes)
		a.removed[resource] = paths
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
