package replay

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// sourceOf returns the source of the events of a cluster.
func sourceOf(cluster string) string { return "/kubernetes/" + url.PathEscape(cluster) }

// rename returns an event with another name of its cluster. Everything else stays the same, byte
// for byte.
func rename(e *consume.Event, cluster string) (*consume.Event, error) {
	record, err := e.MarshalJSON()
	if err != nil {
		return nil, err
	}
	changed := map[string]string{"cluster": cluster, "source": sourceOf(cluster)}
	if rest, ok := strings.CutPrefix(e.PartitionKey, e.Cluster+"/"); ok {
		changed["partitionkey"] = cluster + "/" + rest
	}
	m := jsonscan.NewMembers(record)
	out := append(make([]byte, 0, len(record)+64), '{')
	m.Enter('{')
	for name, ok := m.Next(); ok; name, ok = m.Next() {
		if len(out) > 1 {
			out = append(out, ',')
		}
		quoted, err := json.Marshal(string(name))
		if err != nil {
			return nil, err
		}
		out = append(append(out, quoted...), ':')
		value := m.Value()
		if other, ok := changed[string(name)]; ok {
			value, err = json.Marshal(other)
			if err != nil {
				return nil, err
			}
		}
		out = append(out, value...)
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	renamed, err := consume.Parse(append(out, '}'))
	if err != nil {
		return nil, err
	}
	renamed.Position = e.Position
	return renamed, nil
}
