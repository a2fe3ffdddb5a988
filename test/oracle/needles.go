package oracle

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// needles are texts that must not be found: the marks with which planted Secret values begin.
type needles [][]byte

// NewNeedles looks for the mark as it is and inside any base64 text. In base64 the mark has one of
// three forms, depending on the number of bytes before it. Characters that share bits with
// neighbouring bytes are left out.
func NewNeedles(mark string) needles {
	n := needles{[]byte(mark)}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString(append(make([]byte, before), mark...))
		start, end := (before*8+5)/6, (before+len(mark))*8/6
		n = append(n, []byte(text[start:end]))
	}
	return n
}

func (n needles) In(m Message) []string {
	var found []string
	look := func(where string, text []byte) {
		for _, needle := range n {
			if i := bytes.Index(text, needle); i >= 0 {
				found = append(found,
					fmt.Sprintf("a Secret's value in the %s, at byte %d: %.80q", where, i, text[max(0, i-20):]))
				return
			}
		}
	}
	look("body", m.Body)
	look("subject", []byte(m.Subject))
	for name, values := range m.Header {
		look("header "+name, []byte(name+": "+strings.Join(values, ",")))
	}
	return slices.Clip(found)
}
