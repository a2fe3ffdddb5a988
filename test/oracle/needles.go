package oracle

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// needles are texts that must not be found: the marks that planted Secret values begin with.
type needles [][]byte

// NewNeedles looks for the mark as it is and inside any base64 text. There it is seen in one of three ways, depending on
// how many bytes stand before it; the characters at the ends that hold bits of the neighbours are left out.
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
				found = append(found, fmt.Sprintf("a Secret's value in the %s, at byte %d: %.80q", where, i, text[max(0, i-20):]))
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
