package answers

import (
	"cmp"
	"fmt"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ShowHappening implements answer.Shower.
func (l *lister) ShowHappening(v *timeline.Version, e *consume.Event, k *answer.Happening) error {
	switch l.q.Format.Name {
	case printer.JSON:
		l.events = append(l.events, k)
		return nil
	case printer.YAML:
		head := fmt.Sprintf("Event %s %s about %s", console.Printable(k.Type), console.Printable(k.Reason),
			console.Printable(certainty.ObjectName(k.Regarding.Resource, k.Regarding.Namespace, k.Regarding.Name)))
		if k.Count > 1 {
			head += fmt.Sprintf(", %d times", k.Count)
		}
		return l.printYAML(v, e, head+" by "+cmp.Or(console.Printable(k.By), "<unknown>"), v.After)
	}
	shown := &console.KubernetesEvent{
		Time:            e.Time,
		Resource:        k.Regarding.Resource,
		Namespace:       k.Regarding.Namespace,
		Name:            k.Regarding.Name,
		UID:             k.Regarding.UID,
		ResourceVersion: k.ResourceVersion,
		Event:           k.Name,
		Cluster:         l.ClusterOf(e),
		Type:            k.Type,
		Reason:          k.Reason,
		Message:         k.Message,
		By:              k.By,
		Count:           k.Count,
		First:           k.First,
		Last:            k.Last,
		Late:            k.IsLate(),
		Skipped:         k.Skipped,
	}
	if l.q.Format.IsWide() {
		shown.Cluster = cmp.Or(shown.Cluster, k.Cluster)
	}
	return l.printer.PrintKubernetesEvent(shown)
}

// listEvents returns the Events of JSON, nil if they are not asked for.
func (l *lister) listEvents() *[]*answer.Happening {
	if !l.Span.Events {
		return nil
	}
	list := append([]*answer.Happening{}, l.events...)
	return &list
}

// sayEvents says why there are no Events, and about which objects there may be others.
func (l *lister) sayEvents() {
	for _, line := range l.EventsWords() {
		fmt.Fprintln(l.q.Stderr, console.Printable(line))
	}
}
