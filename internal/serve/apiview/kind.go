package apiview

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// kind is what discovery says of a resource.
type kind struct {
	group, apiVersion, plural, name, singular string
	namespaced                                bool
	shortNames, categories                    []string
	builtin                                   bool
	selectable                                []string // field labels of a custom resource: "spec.color"
}

// String returns the resource as kubectl writes it: "deployments.apps".
func (k *kind) String() string {
	if k.group == "" {
		return k.plural
	}
	return k.plural + "." + k.group
}

// groupVersion returns the apiVersion of objects: "apps/v1".
func (k *kind) groupVersion() string {
	if k.group == "" {
		return k.apiVersion
	}
	return k.group + "/" + k.apiVersion
}

// definition is the part of a CustomResourceDefinition that the view needs.
type definition struct {
	Spec struct {
		Group, Scope string
		Names        struct {
			Plural, Singular, Kind string
			ShortNames, Categories []string
		}
		Versions []definedVersion
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

type definedVersion struct {
	Name                     string
	Served, Storage          bool
	AdditionalPrinterColumns []printerColumn
	SelectableFields         []struct{ JSONPath string }
}

type printerColumn struct {
	Name, Type, Format, Description, JSONPath string
	Priority                                  int32
}

func (d *definition) version(name string) *definedVersion {
	i := slices.IndexFunc(d.Spec.Versions, func(v definedVersion) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Spec.Versions[i]
}

// definitions returns the CRDs by the resource that they define.
func definitions(versions []*timeline.Version) map[string]*definition {
	out := map[string]*definition{}
	for _, v := range versions {
		d := &definition{}
		if json.Unmarshal(v.After, d) == nil && d.Spec.Names.Plural != "" {
			out[d.Spec.Names.Plural+"."+d.Spec.Group] = d
		}
	}
	return out
}

// kindOf returns the kind of a resource, by its objects, its CRD, and what Kubernetes itself has;
// false if none of them says it.
func kindOf(resource string, versions []*timeline.Version, crd *definition) (kind, bool) {
	plural, group, _ := strings.Cut(resource, ".")
	k := kind{group: group, plural: plural}
	if !k.fillFromKubernetes() && crd != nil {
		k.fillFromCRD(crd)
	}
	newest := ""
	for _, v := range versions {
		name := v.APIVersion[strings.LastIndexByte(v.APIVersion, '/')+1:]
		if newest == "" || version.CompareKubeAwareVersionStrings(name, newest) > 0 {
			newest, k.name = name, v.Kind
		}
		k.namespaced = k.namespaced || v.Namespace != ""
	}
	if newest != "" {
		k.apiVersion = newest
	}
	if k.singular == "" {
		k.singular = strings.ToLower(k.name)
	}
	if crd != nil && !k.builtin {
		if v := crd.version(k.apiVersion); v != nil {
			for _, f := range v.SelectableFields {
				k.selectable = append(k.selectable, strings.TrimPrefix(f.JSONPath, "."))
			}
		}
	}
	return k, k.name != "" && k.apiVersion != ""
}

func (k *kind) fillFromKubernetes() bool {
	for _, known := range kinds.Of(k.plural) {
		if known.Group == k.group {
			k.apiVersion = known.Version
			k.name = known.Name
			k.namespaced = known.Namespaced
			k.builtin = true
			k.shortNames, k.categories = known.ShortNames, known.Categories
			return true
		}
	}
	return false
}

func (k *kind) fillFromCRD(d *definition) {
	n := &d.Spec.Names
	k.name = n.Kind
	k.singular = n.Singular
	k.shortNames = n.ShortNames
	k.categories = n.Categories
	k.namespaced = d.Spec.Scope == "Namespaced"
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if v.Served && (k.apiVersion == "" || version.CompareKubeAwareVersionStrings(v.Name, k.apiVersion) > 0) {
			k.apiVersion = v.Name
		}
	}
}
