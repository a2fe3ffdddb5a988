// Package configs holds the commented default configuration and its JSON Schema, as the command
// prints them.
package configs

import _ "embed" // of the two files

// Default is kubecdc.yaml: every key with its default and what it means.
//
//go:embed kubecdc.yaml
var Default []byte

// Schema is kubecdc.schema.json, a JSON Schema (2020-12) of the configuration.
//
//go:embed kubecdc.schema.json
var Schema []byte
