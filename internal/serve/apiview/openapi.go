package apiview

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// kubectl reads in OpenAPI v3 what it may send, before `apply` and `diff` ask whether that is
// allowed. They look for the PATCH of a kind and its parameters; without them, their error hides
// that the past is read-only. `kubectl explain` reads the schemas.
//
// The schemas of custom resources are those of the CRDs of the moment. Those of Kubernetes' own
// kinds have the names of the outermost fields only, and say so. With one that named some inner
// fields, clients would take the others for unknown.

// jsonObject is a JSON object of an OpenAPI document.
type jsonObject = map[string]any

const (
	builtinNote  = "The record does not have the schemas of Kubernetes' own kinds. A cluster that runs has them: kubectl explain."
	noSchemaNote = "The record does not have the schema of this kind at the moment."
	metaPrefix   = "io.k8s.apimachinery.pkg.apis.meta.v1."
	// preserve marks a schema that allows any field.
	preserve = "x-kubernetes-preserve-unknown-fields"
	gvkKey   = "x-kubernetes-group-version-kind"
)

// serveSchemas answers /openapi/v3 and the paths below it. There is no OpenAPI v2.
func (v *View) serveSchemas(w http.ResponseWriter, r *http.Request, path []string) error {
	if len(path) == 0 || path[0] != "v3" {
		return errNoResource()
	}
	if _, err := accepted(r, func(form) bool { return false }); err != nil {
		return err
	}
	names, kinds := v.groups()
	if len(path) == 1 {
		// The path of the request has the moment, if it names one: clients use the addresses as
		// they are.
		below := strings.TrimSuffix(r.URL.Path, "/") + "/"
		paths := map[string]jsonObject{}
		for _, name := range names {
			for _, version := range versions(kinds[name]) {
				at := apiPath(name, version)
				paths[at] = jsonObject{"serverRelativeURL": below + at}
			}
		}
		writeJSON(w, http.StatusOK, jsonObject{"paths": paths})
		return nil
	}
	group, version := "", path[len(path)-1]
	if len(path) == 4 {
		group = path[2]
	}
	if strings.Join(path[1:], "/") != apiPath(group, version) || !slices.Contains(versions(kinds[group]), version) ||
		kinds[group] == nil && group != "" {
		return errNoResource()
	}
	document, err := v.openAPI(group, version, kinds[group])
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, document)
	return nil
}

// apiPath returns where the resources of a group are: "apis/apps/v1".
func apiPath(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

// openAPI returns the OpenAPI v3 document of the kinds of a group and version.
func (v *View) openAPI(group, version string, kinds []served) (jsonObject, error) {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k served) bool { return k.apiVersion != version })
	namespace := kind{
		apiVersion: "v1",
		plural:     "namespaces",
		name:       "Namespace",
		builtin:    true,
	}
	if group == "" && version == "v1" &&
		!slices.ContainsFunc(kinds, func(k served) bool { return k.plural == namespace.plural }) {
		// kubectl asks it for kinds that it does not find.
		kinds = append(kinds, served{namespace, readVerbs()})
	}
	paths, schemas := jsonObject{}, jsonObject{}
	addMetadata(schemas)
	for i := range kinds {
		k := &kinds[i]
		collection := "/" + apiPath(group, version) + "/"
		if k.namespaced {
			collection += "namespaces/{namespace}/"
		}
		collection += k.plural
		if !slices.Contains(k.verbs, "get") {
			paths[collection] = jsonObject{"post": k.operation(nil)}
			continue
		}
		paths[collection] = jsonObject{"get": k.operation(nil)}
		paths[collection+"/{name}"] = jsonObject{"get": k.operation(nil), "patch": k.operation(
			// Without the strategic merge patch, kubectl does not look for its rules in the schema.
			[]types.PatchType{types.ApplyYAMLPatchType, types.JSONPatchType, types.MergePatchType},
		)}
		s, err := v.schemaOf(&k.kind)
		if err != nil {
			return nil, err
		}
		schemas[k.schemaName()] = s
	}
	return jsonObject{
		"openapi":    "3.0.0",
		"info":       jsonObject{"title": "kubecdc", "version": v.serverVersion().GitVersion},
		"paths":      paths,
		"components": jsonObject{"schemas": schemas},
	}, nil
}

// operation returns an operation on objects of the kind; patches are the forms that its body may
// have.
func (k *kind) operation(patches []types.PatchType) jsonObject {
	out := jsonObject{gvkKey: k.gvk(), "responses": jsonObject{"200": jsonObject{"description": "OK"}}}
	if patches == nil {
		return out
	}
	content := jsonObject{}
	for _, p := range patches {
		content[string(p)] = jsonObject{"schema": jsonObject{"type": "object"}}
	}
	out["requestBody"] = jsonObject{"content": content, "required": true}
	var parameters []jsonObject
	for _, name := range []string{"dryRun", "fieldManager", "fieldValidation", "force"} {
		parameters = append(parameters, jsonObject{"name": name, "in": "query", "schema": jsonObject{
			"type":        "string",
			"uniqueItems": true,
		}})
	}
	out["parameters"] = parameters
	return out
}

func (k *kind) gvk() jsonObject {
	return jsonObject{"group": k.group, "version": k.apiVersion, "kind": k.name}
}

// schemaName returns the name of the kind's schema, as kube-apiserver names those of custom
// resources.
func (k *kind) schemaName() string {
	parts := strings.Split(k.group, ".")
	slices.Reverse(parts)
	return strings.TrimPrefix(strings.Join(append(parts, k.apiVersion, k.name), "."), ".")
}

// schemaOf returns the schema of a kind: that of its CRD at the moment, or one that allows every
// field.
func (v *View) schemaOf(k *kind) (jsonObject, error) {
	var out jsonObject
	if !k.builtin {
		var err error
		out, err = v.definedSchema(k)
		if err != nil {
			return nil, err
		}
	}
	if out == nil {
		out = k.openSchema()
	}
	properties, _ := out["properties"].(jsonObject)
	if properties == nil {
		properties = jsonObject{}
	}
	properties["apiVersion"] = jsonObject{"type": "string", "description": metav1.TypeMeta{}.SwaggerDoc()["apiVersion"]}
	properties["kind"] = jsonObject{"type": "string", "description": metav1.TypeMeta{}.SwaggerDoc()["kind"]}
	properties["metadata"] = jsonObject{
		"description": metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"],
		"allOf":       []jsonObject{{"$ref": "#/components/schemas/" + metaPrefix + "ObjectMeta"}},
	}
	out["properties"], out[gvkKey] = properties, []jsonObject{k.gvk()}
	return out, nil
}

// definedSchema returns the schema that the CRD of a kind has at the moment, nil if the record does
// not have it.
func (v *View) definedSchema(k *kind) (jsonObject, error) {
	definitions := v.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	if definitions == nil {
		return nil, nil
	}
	o := v.list(definitions).find(definitions.key("", k.String()))
	if o == nil {
		return nil, nil
	}
	body, err := o.AppendJSON(nil)
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema jsonObject }
			}
		}
	}
	if err := json.Unmarshal(body, &crd); err != nil {
		return nil, err
	}
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == k.apiVersion {
			return crd.Spec.Versions[i].Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, nil
}

// openSchema returns a schema that allows every field, and says why it names none but the
// outermost.
func (k *kind) openSchema() jsonObject {
	note := noSchemaNote
	if k.builtin {
		note = builtinNote
	}
	out := jsonObject{"type": "object", "description": note, preserve: true}
	typed, err := scheme.Scheme.New(schema.GroupVersionKind{Group: k.group, Version: k.apiVersion, Kind: k.name})
	if err != nil { // not one of k8s.io/api
		return out
	}
	documented, _ := typed.(interface{ SwaggerDoc() map[string]string })
	properties := jsonObject{}
	t := reflect.TypeOf(typed).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" { // TypeMeta
			continue
		}
		text := note
		if documented != nil {
			text = documented.SwaggerDoc()[name] + " " + note
		}
		properties[name] = jsonObject{"description": strings.TrimSpace(text), preserve: true}
	}
	out["properties"] = properties
	return out
}

// addMetadata adds the schema of metadata, and those that it refers to.
func addMetadata(schemas jsonObject) {
	for _, of := range []interface{ SwaggerDoc() map[string]string }{
		metav1.ObjectMeta{}, metav1.OwnerReference{}, metav1.ManagedFieldsEntry{}, metav1.FieldsV1{},
	} {
		t := reflect.TypeOf(of)
		out := jsonObject{"type": "object", "description": of.SwaggerDoc()[""]}
		properties := jsonObject{}
		var required []string
		for i := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name == "-" { // the content of FieldsV1
				continue
			}
			property := schemaOfField(t.Field(i).Type)
			property["description"] = of.SwaggerDoc()[name]
			properties[name] = property
			if !strings.Contains(options, "omit") {
				required = append(required, name)
			}
		}
		if len(properties) > 0 {
			out["properties"] = properties
		}
		if required != nil {
			out["required"] = required
		}
		schemas[metaPrefix+t.Name()] = out
	}
}

// schemaOfField returns the schema of a field of the metadata.
func schemaOfField(t reflect.Type) jsonObject {
	if t == reflect.TypeFor[metav1.Time]() {
		return jsonObject{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOfField(t.Elem())
	case reflect.Slice:
		return jsonObject{"type": "array", "items": schemaOfField(t.Elem())}
	case reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": schemaOfField(t.Elem())}
	case reflect.Struct:
		return jsonObject{"allOf": []jsonObject{{"$ref": "#/components/schemas/" + metaPrefix + t.Name()}}}
	case reflect.Bool:
		return jsonObject{"type": "boolean"}
	case reflect.Int64:
		return jsonObject{"type": "integer", "format": "int64"}
	}
	return jsonObject{"type": "string"}
}
