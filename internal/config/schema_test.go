package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

const schemaFile = "../../configs/kubecdc.schema.json"

// variable matches a variable (or a dollar) in a text. No schema can check its value.
const variable = `\$`

// keyword sets a keyword that only editors support: the YAML language server and programs that are
// built on it. (https://github.com/redhat-developer/yaml-language-server#more-about-json-schema)
func keyword(s *jsonschema.Schema, name string, value any) {
	if s.Extras == nil {
		s.Extras = map[string]any{}
	}
	s.Extras[name] = value
}

func types(s *jsonschema.Schema, names ...string) {
	s.Type = ""
	keyword(s, "type", names)
}

// schemaOf returns the schema of a value, without the description of its key.
func schemaOf(typ reflect.Type, path string) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	key := config.KeyFacts()[path]
	limit, limited := config.Limits()[path]
	switch {
	case typ == reflect.TypeFor[yamldoc.Duration]():
		types(s, "string", "integer")
		s.Pattern = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+)$|` + variable
		s.Minimum, s.Maximum = "0", "0"
		keyword(s, "patternErrorMessage", "must be a duration such as 90s, 2m, 12h or 7d")
	case typ == reflect.TypeFor[yamldoc.Bytes]():
		types(s, "string", "integer")
		s.Pattern = `^[0-9]+(KiB|MiB|GiB|TiB)?$|` + variable
		s.Minimum = "0"
		keyword(s, "patternErrorMessage", "must be a number of bytes such as 65536, 64MiB or 20GiB")
	case typ == reflect.TypeFor[yamldoc.Ratio]():
		types(s, "number", "string")
		s.Pattern = `^(0?\.[0-9]+|0|1|1\.0*)$|` + variable
		s.Minimum, s.Maximum = "0", "1"
		keyword(s, "patternErrorMessage", "must be a number from 0 to 1")
	case typ == reflect.TypeFor[config.ResourcePattern]():
		s.Type, s.Pattern = "string", `^(\*|[a-z]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?$|`+variable
		keyword(s, "patternErrorMessage", "must be a resource such as pods, deployments.apps or *.networking.k8s.io")
	case typ == reflect.TypeFor[config.NamespacePattern]():
		types(s, "string", "integer")
		s.Pattern = key.Pattern + "|" + variable
		keyword(s, "patternErrorMessage", "must be a namespace or a glob over their names, with ! before it to exclude")
	case typ.Kind() == reflect.Pointer:
		return schemaOf(typ.Elem(), path)
	case typ.Kind() == reflect.Struct, isVariants(typ):
		types(s, "object", "null")
		s.Properties = jsonschema.NewProperties()
		s.AdditionalProperties = jsonschema.FalseSchema
		if isSwitch(typ) {
			types(s, "object", "boolean", "string", "null")
			s.Pattern = variable
			keyword(s, "patternErrorMessage", "must be true or false, or a mapping")
		}
	case typ.Kind() == reflect.Map:
		types(s, "object", "null")
		s.AdditionalProperties = &jsonschema.Schema{}
		types(s.AdditionalProperties, "string", "number", "boolean")
	case typ.Kind() == reflect.Slice:
		s.Type, s.Items = "array", schemaOf(typ.Elem(), path+"[]")
		s.UniqueItems = typ.Elem().Kind() != reflect.Struct || isText(typ.Elem())
	case typ.Kind() == reflect.Bool:
		types(s, "boolean", "string")
		s.Pattern = variable
		keyword(s, "patternErrorMessage", "must be true or false")
	case typ.Kind() == reflect.Int:
		types(s, "integer", "string")
		s.Pattern = variable
		keyword(s, "patternErrorMessage", "must be a whole number")
	default:
		s.Type = "string"
		if key.Pattern != "" {
			s.Pattern = key.Pattern + "|" + variable
			if key.Message != "" {
				keyword(s, "patternErrorMessage", key.Message)
			}
		}
	}
	if enum, ok := reflect.Zero(typ).Interface().(yamldoc.Enum); ok {
		s = oneOf(enum.Values())
	}
	if limited && typ != reflect.TypeFor[yamldoc.Duration]() {
		s.Minimum, s.Maximum = bound(limit.Low), bound(limit.High)
	}
	return s
}

// bound returns a number without its unit.
func bound(v any) json.Number {
	data, _ := json.Marshal(reflect.ValueOf(v).Int())
	return json.Number(data)
}

func oneOf[T any](values []T) *jsonschema.Schema {
	choice := &jsonschema.Schema{}
	for _, v := range values {
		choice.Enum = append(choice.Enum, v)
	}
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{choice, {Type: "string", Pattern: variable}}}
}

func makeSchema(t *testing.T) []byte {
	t.Helper()
	root := schemaOf(reflect.TypeFor[config.Config](), "")
	root.Type, root.Extras = "object", nil
	root.Version = jsonschema.Version
	root.ID = "https://kubecdc.dev/schema/config/v1"
	root.Title = "kubecdc configuration"
	root.Description = "What kubecdc captures and where it sends it. kubecdc config check says more about a file than a schema can."
	root.Required = []string{"apiVersion"}
	mappings := map[string]*jsonschema.Schema{"": root}
	for _, e := range reference(t) {
		var s *jsonschema.Schema
		switch {
		case config.General(e.path) != e.path: // described under another key
			s = &jsonschema.Schema{
				Ref: "#/properties/" + strings.ReplaceAll(config.General(e.path), ".", "/properties/"),
			}
		default:
			s = schemaOf(e.typ, e.path)
		}
		s.Description, s.Default = e.prose, e.value
		switch e.path {
		case "apiVersion":
			s = &jsonschema.Schema{Enum: []any{config.APIVersion}, Description: e.prose}
		case "watch":
			s.MinItems = new(uint64)
			*s.MinItems = 1
			s.Items.Type, s.Items.Extras = "object", nil
			mappings["watch[]"] = s.Items
			s.Items.DependentRequired = map[string][]string{"onError": {"where"}}
		case "watch[].operations":
			var words []string
			for _, o := range config.Choosable() {
				words = append(words, string(o))
			}
			s.Items = oneOf(words)
		case "watch[].resources":
			s.MinItems = new(uint64)
			*s.MinItems = 1
		case "strip", "watch[].redact":
			s.Items.Not = &jsonschema.Schema{Pattern: config.Identity()}
		case "bus":
			one := uint64(1)
			s.MinProperties, s.MaxProperties = &one, &one
			types(s, "object") // null is not a bus
		case "checkpoint", "claimCheck", "deadLetter":
			s.MaxProperties = new(uint64)
			*s.MaxProperties = 1
		case "relays":
			s.Items.Type, s.Items.Extras = "object", nil
			mappings["relays[]"] = s.Items
		case "relays[].to", "relays[].to.slack":
			types(s, "object")
			one := uint64(1)
			s.MinProperties = &one
			s.MaxProperties = &one
			if e.key == "slack" {
				two := uint64(2) // a token and a channel
				s.MaxProperties = &two
				s.DependentRequired = map[string][]string{"tokenFile": {"channel"}, "channel": {"tokenFile"}}
			}
		case "server.address":
			s.Pattern = `:[0-9]{1,5}$|` + variable
			keyword(s, "patternErrorMessage", "must be host:port or :port")
		}
		key := config.KeyFacts()[e.path]
		one := uint64(1)
		switch {
		case key.NotEmpty && s.Items != nil:
			s.MinItems = &one
		case key.NotEmpty:
			s.MinLength = &one
		case key.Most > 0:
			s.MaxProperties = &key.Most
			s.DependentRequired = map[string][]string{}
			for i, name := range key.Together {
				s.DependentRequired[name] = slices.Concat(key.Together[:i], key.Together[i+1:])
			}
		}
		if strings.HasSuffix(e.path, "File") {
			s.Pattern = config.AbsolutePath() + "|^$|" + variable
			keyword(s, "patternErrorMessage", "must be the absolute path of a file")
		}
		if together, ok := map[string]string{"certFile": "keyFile", "keyFile": "certFile"}[e.key]; ok &&
			strings.HasSuffix(e.parent(), "tls") {
			m := mappings[e.parent()]
			if m.DependentRequired == nil {
				m.DependentRequired = map[string][]string{}
			}
			m.DependentRequired[e.key] = []string{together}
		}
		if s.Properties != nil {
			mappings[e.path] = s
			needed(s, e.path)
		}
		if s.Items != nil && s.Items.Properties != nil {
			needed(s.Items, e.path+"[]")
		}
		mappings[e.parent()].Properties.Set(e.key, s)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// needed marks the keys of a mapping that cannot be left out. If there are any, the mapping cannot
// be empty.
func needed(s *jsonschema.Schema, path string) {
	for _, r := range required() {
		if parent, key, ok := cutLast(r); ok && parent == path {
			s.Required = append(s.Required, key)
		}
	}
	if s.Required != nil {
		types(s, "object")
	}
}

// cutLast splits the path of a key into the path of its mapping and the name of the key.
func cutLast(path string) (parent, key string, ok bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// TestSchema compares the published schema with the one that is generated from types and comments.
func TestSchema(t *testing.T) {
	golden(t, schemaFile, string(makeSchema(t)))
}

func compileSchema(t *testing.T) *validator.Schema {
	t.Helper()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json") // checks it against the meta-schema, too
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance reads a file as an editor does, without variables. It returns false if the file is not
// YAML.
func instance(t *testing.T, file string) (any, bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, false
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, false
	}
	return doc, true
}

// TestSchemaTakesGoodFiles: the schema accepts the files that Parse accepts.
func TestSchemaTakesGoodFiles(t *testing.T) {
	s := compileSchema(t)
	for _, file := range append(files(t, "testdata/good/*.yaml"), defaultFile) {
		doc, ok := instance(t, file)
		if !ok {
			t.Errorf("%s: cannot be read", file)
		} else if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// onlyValidate lists the files whose errors a schema cannot detect, and why.
var onlyValidate = map[string]string{
	"cluster-scoped":            "that nodes have no namespace",
	"dollar":                    "variables",
	"variable-unset":            "variables",
	"mode-central":              "keys that depend on each other",
	"mode-node":                 "keys that depend on each other",
	"mode-node-all":             "keys that depend on each other",
	"variables":                 "variables",
	"merge-key":                 "of YAML: gone once it is read",
	"tag":                       "of YAML: gone once it is read",
	"second-document":           "of YAML: each document is valid",
	"two-documents":             "of YAML: each document is valid",
	"never-matches":             "rules that depend on each other",
	"never-matches-namespaces":  "globs that depend on each other",
	"never-matches-selectors":   "the grammar of selectors",
	"never-matches-together":    "rules that depend on each other",
	"never-matches-within":      "rules that depend on each other",
	"field-selectors-events":    "rules that depend on each other",
	"field-selectors":           "rules that depend on each other",
	"redaction-across":          "keys that depend on each other",
	"redaction-hash":            "keys that depend on each other",
	"redaction-key":             "keys that depend on each other",
	"overlap-versions":          "rules that depend on each other",
	"event-max-bytes":           "how large a size is",
	"http-port":                 "how large a port is",
	"relay-slack-by-http":       "whose URL it is",
	"claim-check-object-store":  "keys that depend on each other",
	"dead-letter-kafka":         "keys that depend on each other",
	"dead-letter-kind":          "keys that depend on each other",
	"dead-letter-namespaces":    "keys that depend on each other",
	"dead-letter-same-topic":    "keys that depend on each other",
	"dead-letter-same-url":      "keys that depend on each other",
	"dead-letter-stdout":        "keys that depend on each other",
	"leader-election-order":     "keys that depend on each other",
	"http-batch-binary":         "keys that depend on each other",
	"http-tls-plain":            "keys that depend on each other",
	"kafka-create-numbers":      "keys that depend on each other",
	"kafka-every-retention":     "keys that depend on each other",
	"kafka-message-bytes":       "keys that depend on each other",
	"kafka-sasl-oauth-none":     "keys that depend on each other",
	"kafka-sasl-oauth-two":      "keys that depend on each other",
	"oversize-claim-check-none": "keys that depend on each other",
	"oversize-reference":        "keys that depend on each other",
	"relay-of-http":             "keys that depend on each other",
	"relay-into-topics":         "keys that depend on each other",
	"relay-to-itself-kafka":     "keys that depend on each other",
	"relay-to-itself":           "keys that depend on each other",
	"relay-to-own-account":      "keys that depend on each other",
	"every-max-age":             "keys that depend on each other",
	"every-never":               "keys that depend on each other",
	"every-too-often":           "how long a duration is",
	"plaintext-claim-check":     "keys that depend on each other",
	"plaintext-http":            "keys that depend on each other",
	"plaintext-kafka-oauth":     "keys that depend on each other",
	"plaintext-kafka-plain":     "keys that depend on each other",
	"plaintext-nats-password":   "keys that depend on each other",
	"plaintext-nats-token-ws":   "keys that depend on each other",
	"plaintext-relay":           "keys that depend on each other",
	"plaintext-tracing":         "keys that depend on each other",
	"selectors":                 "the grammar of selectors",
	"wrong-group":               "which groups Kubernetes serves a resource in",
}

// TestSchemaRefusesBadFiles: the schema rejects all bad files except those in onlyValidate.
func TestSchemaRefusesBadFiles(t *testing.T) {
	s := compileSchema(t)
	for _, file := range files(t, "testdata/bad/*.yaml") {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		doc, ok := instance(t, file)
		if !ok {
			continue // not YAML: every editor reports that
		}
		err := s.Validate(doc)
		var refused *validator.ValidationError
		_, allowed := onlyValidate[name]
		switch {
		case err == nil && !allowed:
			t.Errorf("%s: the schema takes it", name)
		case err != nil && allowed:
			t.Errorf("%s: the schema refuses it: %v; it is no exception any more", name, err)
		case err != nil && !errors.As(err, &refused):
			t.Errorf("%s: %v", name, err)
		}
	}
}
