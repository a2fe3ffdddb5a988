// Package yamltext writes JSON as YAML, as kubectl does: with the members sorted, and so that every
// parser of YAML 1.1 or 1.2 reads the same values. The console, which shows parts of objects on a
// terminal, in the order of the document and with escapes for the terminal, has a writer of its
// own.
package yamltext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// notInYAML are the characters that JSON permits, and that the parser of YAML rejects or reads as a
// line end.
var notInYAML = regexp.MustCompile("[\x7f-\u009f\ufeff\ufffe\uffff]")

// FromJSON returns JSON as the YAML that kubectl writes.
func FromJSON(raw []byte) ([]byte, error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(value) // without escapes of surrogates, which YAML does not have
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(notInYAML.ReplaceAllFunc(raw, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	}))
}
