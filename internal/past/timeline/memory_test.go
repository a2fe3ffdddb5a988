package timeline_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A caller may build events whose texts are slices of a large message. A text that a Fold or a
// Survey keeps must be a copy: otherwise it keeps the whole message in memory.
func TestTextsAreKeptWithoutTheirMessage(t *testing.T) {
	t.Parallel()
	const lines = `
		0 begin @10 initial
		0 started S1 @10 initial
		0 r web/1 @5 S1
		0 r db/2 @6 S1 ns=other
		0.1 completed S1 @10
		1 progress @20
		1.5 u web/1 @25 was=5 skipped=2
		2 gap dead-letter 25-27 @27 since=1 letter=pods/1/27
		2.5 gap expired 27-30 since=2
		3 started S2 @31
		3 r web/1 @25 S2
		4 c new/3 @40 ns=third
		4 progress @41 away=closed/3.2-3.5 hidden=3.2/33-3.6/35
		5 end removed @50 scope=pods/a
		6 begin @60 scope=pods/b
		7 progress @70 away=cut/6.5`
	for _, m := range []timeline.Moment{{}, timeline.At(minute("3.4")), timeline.AtVersion(34, 0)} {
		fold := timeline.NewFold(m, timeline.Options{Late: true})
		checkTexts(t, "a fold", fold, lines, func(e *consume.Event) { fold.Add(e) })
	}
	survey := timeline.NewSurvey(minute("0.5"), minute("6"), timeline.Options{})
	for n := 1; n == 1 || survey.Next(); n++ {
		checkTexts(t, fmt.Sprintf("reading %d of a survey", n), survey, lines, func(e *consume.Event) { survey.Add(e) })
	}
}

// checkTexts adds the events of a record, each with all texts in one message. Then it looks for
// these messages in the texts that reader keeps.
func checkTexts(t *testing.T, name string, reader any, lines string, add func(*consume.Event)) {
	t.Helper()
	var messages []string
	for _, e := range record(lines) {
		messages = append(messages, joinTexts(e))
		add(e)
	}
	add(&consume.Event{DeadLetterReason: "invalid"}) // a Fold has the gap of the last event
	f := finder{messages: messages, seen: map[unsafe.Pointer]bool{}, found: map[string]bool{}}
	f.find(reflect.ValueOf(reader), "")
	for path := range f.found {
		t.Errorf("%s has a text inside a message: %s", name, path)
	}
}

// joinTexts makes all texts of an event slices of one text, and returns that.
func joinTexts(e *consume.Event) string {
	var whole strings.Builder
	eachText(reflect.ValueOf(e), func(v reflect.Value) { whole.WriteString(v.String()) })
	message, at := whole.String(), 0
	eachText(reflect.ValueOf(e), func(v reflect.Value) {
		n := len(v.String())
		v.SetString(message[at : at+n])
		at += n
	})
	return message
}

// eachText calls f with each exported text inside a value.
func eachText(v reflect.Value, f func(reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			f(v)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			eachText(v.Elem(), f)
		}
	case reflect.Struct:
		for k := range v.NumField() {
			eachText(v.Field(k), f)
		}
	case reflect.Slice:
		for k := range v.Len() {
			eachText(v.Index(k), f)
		}
	default:
	}
}

// finder finds texts that are in the memory of messages.
type finder struct {
	messages []string
	seen     map[unsafe.Pointer]bool
	found    map[string]bool
}

// find looks for the messages in a value. It does not look into a Tracker, which belongs to another
// package.
func (f *finder) find(v reflect.Value, path string) {
	if v.Type() == reflect.TypeFor[consume.Tracker]() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if f.isInMessage(v.String()) {
			f.found[path] = true
		}
	case reflect.Pointer:
		if v.IsNil() || f.seen[v.UnsafePointer()] {
			return
		}
		f.seen[v.UnsafePointer()] = true
		f.find(v.Elem(), path)
	case reflect.Struct:
		for k := range v.NumField() {
			f.find(v.Field(k), path+"."+v.Type().Field(k).Name)
		}
	case reflect.Slice:
		for k := range v.Len() {
			f.find(v.Index(k), path+"[]")
		}
	case reflect.Map:
		for each := v.MapRange(); each.Next(); {
			f.find(each.Key(), path+"{key}")
			f.find(each.Value(), path+"{}")
		}
	default:
	}
}

func (f *finder) isInMessage(text string) bool {
	if text == "" {
		return false
	}
	at := uintptr(unsafe.Pointer(unsafe.StringData(text)))
	for _, m := range f.messages {
		begin := uintptr(unsafe.Pointer(unsafe.StringData(m)))
		if begin <= at && at < begin+uintptr(len(m)) {
			return true
		}
	}
	return false
}
