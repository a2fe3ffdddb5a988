package selection

import (
	"maps"
	"reflect"
	"slices"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// Mutations returns configurations that each differ from c in one setting, by a description of the
// difference.
func (c *Config) Mutations() map[string]*Config {
	all := make(map[string]*Config)
	change := func(name string, do func(c *Config)) {
		other := *c
		other.Rules = slices.Clone(c.Rules)
		do(&other)
		all[name] = &other
	}
	for i := range c.Rules {
		at := oracle.FormatRev(uint64(i))
		change("operations of "+at, func(c *Config) {
			if r := &c.Rules[i]; len(r.Operations) > 0 {
				r.Operations = nil
			} else {
				r.Operations = []string{"created"}
			}
		})
		change("where of "+at, func(c *Config) { c.Rules[i].Where = nil })
		change("onError of "+at, func(c *Config) { c.Rules[i].Drop = !c.Rules[i].Drop })
		change("labels of "+at, func(c *Config) { c.Rules[i].Labels = nil })
		change("fields of "+at, func(c *Config) { c.Rules[i].Fields = nil })
		change("redact of "+at, func(c *Config) {
			c.Rules[i].Redact = append(slices.Clone(c.Rules[i].Redact), "metadata.labels.tier")
		})
		change("without "+at, func(c *Config) { c.Rules = slices.Delete(c.Rules, i, i+1) })
		if i > 0 {
			change("order before "+at, func(c *Config) { c.Rules[i-1], c.Rules[i] = c.Rules[i], c.Rules[i-1] })
		}
	}
	for i, name := range c.Noise {
		change("noise "+name, func(c *Config) { c.Noise = slices.Delete(slices.Clone(c.Noise), i, i+1) })
	}
	change("strip", func(c *Config) { c.Strip = []string{"metadata.labels", "metadata.managedFields"} })
	change("secrets", func(c *Config) { c.Redaction.Off = !c.Redaction.Off })
	change("key", func(c *Config) {
		if c.Redaction.Key != nil {
			c.Redaction.Key = []byte("another key, and nobody's")
		}
	})
	change("across objects", func(c *Config) { c.Redaction.AcrossObjects = !c.Redaction.AcrossObjects })
	return all
}

// SameChoice reports whether two choices want the same records.
func SameChoice(a, b map[oracle.ObjectKey][]Chosen) bool {
	// sent returns only the changes that are sent. WithheldCounts shows a difference in the reasons
	// for the others.
	sent := func(list []Chosen) []Chosen {
		var out []Chosen
		for _, e := range list {
			if e.Reason != "" {
				continue
			}
			e.index = 0
			e.Prev = nil
			e.Next = nil
			if e.Op == oracle.Entered { // The agent may or may not know the version before.
				e.Before = nil
			}
			out = append(out, e)
		}
		return out
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for key := range keys {
		if !reflect.DeepEqual(sent(a[key]), sent(b[key])) {
			return false
		}
	}
	return true
}
