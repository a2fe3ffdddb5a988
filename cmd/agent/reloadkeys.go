package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
)

// reloadable are the keys that a running agent takes anew. The others are what it has connections, files, a Lease or a queue for.
func reloadable() []string { return []string{"watch", "strip", "noise", "redaction", "log.level"} }

// changedKeys are the keys whose values differ, as they are written: "bus.nats.url". A list is one key.
func changedKeys(a, b *config.Config) []string {
	return changed(nil, "", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

func changed(out []string, path string, a, b reflect.Value) []string {
	switch {
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return changed(out, path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Struct && ofKeys(a.Type()):
		for i := range a.NumField() {
			key, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
			if path != "" {
				key = path + "." + key
			}
			out = changed(out, key, a.Field(i), b.Field(i))
		}
		return out
	case !reflect.DeepEqual(a.Interface(), b.Interface()):
		return append(out, path)
	}
	return out
}

// ofKeys tells a mapping of the file from a value, as a duration is.
func ofKeys(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == "" {
			return false
		}
	}
	return t.NumField() > 0
}

// fixed are those of the keys that need a restart.
func fixed(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(reloadable(), func(r string) bool { return key == r || strings.HasPrefix(key, r+".") })
	})
}
