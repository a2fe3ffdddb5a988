package consume_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// MarshalJSON and Parse each have a list of the attributes, and both have a row for each field of
// Event that holds one. Its name in lower case is that of the attribute.
func TestAttributesAreWrittenAndRead(t *testing.T) {
	e := &consume.Event{
		Time:       time.Date(2026, 11, 20, 15, 0, 0, 1, time.UTC),
		Extensions: map[string]string{"ofalaterversion": "x"},
	}
	names := []string{"ofalaterversion", "specversion", "time"}
	fields := reflect.ValueOf(e).Elem()
	for _, f := range reflect.VisibleFields(fields.Type()) {
		if f.Type.Kind() == reflect.String && f.IsExported() {
			name := strings.ToLower(f.Name)
			fields.FieldByIndex(f.Index).SetString(consume.TypePrefix + name) // every text that begins so may be a type
			names = append(names, name)
		}
	}
	written, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(written, &members); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(members))); diff != "" {
		t.Errorf("attributes of the fields of Event, and those that are written (-fields +written):\n%s", diff)
	}
	read, err := consume.Parse(written)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, read, cmpopts.IgnoreUnexported(consume.Event{})); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
}
