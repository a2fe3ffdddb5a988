package reload

import (
	"reflect"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// reloadable returns the keys that a running agent can change. The others determine its
// connections, files, Lease or queue.
func reloadable() []string { return []string{"watch", "strip", "noise", "redaction", "log.level"} }

// changedKeys returns the keys whose values differ, such as "bus.nats.url". A list is one key.
func changedKeys(a, b *config.Config) []string {
	return changed(nil, "", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

func changed(out []string, path string, a, b reflect.Value) []string {
	switch {
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return changed(out, path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Interface && !a.IsNil() && !b.IsNil() && a.Elem().Type() == b.Elem().Type():
		return changed(out, path, a.Elem(), b.Elem())
	case a.Type().Implements(reflect.TypeFor[yamldoc.Variants]()):
		for _, key := range a.Interface().(yamldoc.Variants).Keys() { //nolint:forcetypeassert // ensured by its type
			x, y := a.MapIndex(reflect.ValueOf(key)), b.MapIndex(reflect.ValueOf(key))
			switch {
			case x.IsValid() && y.IsValid():
				out = changed(out, path+"."+key, x, y)
			case x.IsValid() != y.IsValid():
				out = append(out, path+"."+key)
			}
		}
		return out
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

// ofKeys reports whether a struct is a mapping of the file, as opposed to a value such as a
// duration.
func ofKeys(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == "" {
			return false
		}
	}
	return t.NumField() > 0
}

// fixed returns those of the keys that need a restart.
func fixed(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(reloadable(), func(r string) bool {
			return key == r || strings.HasPrefix(key, r+".")
		})
	})
}
