package apiview

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	discovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
)

// unknownVersion is what /version says if the record does not have the version of the API server:
// the version whose kinds and columns the answers have.
const unknownVersion = "v1.37.0+kubecdc"

// serverVersion answers /version: the version of the API server at the moment. The record does not
// have how it was built.
func (v *View) serverVersion() version.Info {
	out := version.Info{GitVersion: cmp.Or(v.version, unknownVersion)}
	parsed, err := utilversion.ParseGeneric(out.GitVersion)
	if err != nil { // such as a text of another distribution
		parsed = utilversion.MustParseGeneric(unknownVersion)
	}
	out.Major = strconv.FormatUint(uint64(parsed.Major()), 10)
	out.Minor = strconv.FormatUint(uint64(parsed.Minor()), 10)
	return out
}

func readVerbs() []string { return []string{"get", "list", "watch"} }

// reviews are the resources by which clients ask for their own permissions, and whose a token is.
func reviews() []kind {
	var out []kind
	for _, f := range [][3]string{
		{"authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"},
		{"authentication.k8s.io", "tokenreviews", "TokenReview"},
		{"authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"},
		{"authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"},
	} {
		out = append(out, kind{
			group:      f[0],
			apiVersion: "v1",
			plural:     f[1],
			name:       f[2],
			singular:   f[1][:len(f[1])-1],
		})
	}
	return out
}

// served is a kind with its verbs.
type served struct {
	kind
	verbs []string
}

// groups returns the names of the API groups, sorted, and the kinds of each. The core group is
// always there.
func (v *View) groups() (names []string, kinds map[string][]served) {
	kinds = map[string][]served{"": nil}
	for _, r := range v.resources {
		kinds[r.group] = append(kinds[r.group], served{r.kind, readVerbs()})
	}
	for _, k := range reviews() {
		kinds[k.group] = append(kinds[k.group], served{k, []string{"create"}})
	}
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, kinds
}

// versions returns the versions of the kinds of a group, the newest first.
func versions(kinds []served) []string {
	var out []string
	for i := range kinds {
		if !slices.Contains(out, kinds[i].apiVersion) {
			out = append(out, kinds[i].apiVersion)
		}
	}
	if len(out) == 0 {
		out = []string{"v1"} // the core group without resources
	}
	slices.SortFunc(out, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return out
}

// serveDiscovery answers /api, /apis and the paths below that have no resource.
func (v *View) serveDiscovery(w http.ResponseWriter, r *http.Request, path []string) error {
	f, err := accepted(r, ofDiscovery)
	if err != nil {
		return err
	}
	names, kinds := v.groups()
	core := path[0] == "api"
	if len(path) == 1 && f.as != "" {
		v.serveAggregated(w, core, names, kinds)
		return nil
	}
	if core && len(path) == 1 {
		writeJSON(w, http.StatusOK, metav1.APIVersions{
			TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
			Versions:                   versions(kinds[""]),
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		})
		return nil
	}
	if len(path) == 1 {
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{
			Kind:       "APIGroupList",
			APIVersion: "v1",
		}, Groups: []metav1.APIGroup{}}
		for _, name := range names[1:] {
			list.Groups = append(list.Groups, group(name, kinds[name]))
		}
		writeJSON(w, http.StatusOK, list)
		return nil
	}
	name, version := "", path[len(path)-1]
	if !core {
		name = path[1]
	}
	if kinds[name] == nil && !core {
		return errNoResource()
	}
	if !core && len(path) == 2 {
		g := group(name, kinds[name])
		g.Kind, g.APIVersion = "APIGroup", "v1"
		writeJSON(w, http.StatusOK, g)
		return nil
	}
	if !slices.Contains(versions(kinds[name]), version) {
		return errNoResource()
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{
		Kind:       "APIResourceList",
		APIVersion: "v1",
	}, APIResources: []metav1.APIResource{}}
	list.GroupVersion = (&kind{group: name, apiVersion: version}).groupVersion()
	for i := range kinds[name] {
		if k := &kinds[name][i]; k.apiVersion == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name:         k.plural,
				SingularName: k.singular,
				Namespaced:   k.namespaced,
				Kind:         k.name,
				Verbs:        k.verbs,
				ShortNames:   k.shortNames,
				Categories:   k.categories,
			})
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func group(name string, kinds []served) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for _, version := range versions(kinds) {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: name + "/" + version,
			Version:      version,
		})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// serveAggregated answers the discovery of all groups at once.
func (v *View) serveAggregated(w http.ResponseWriter, core bool, names []string, kinds map[string][]served) {
	list := discovery.APIGroupDiscoveryList{Items: []discovery.APIGroupDiscovery{}}
	list.Kind, list.APIVersion = "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"
	for _, name := range names {
		if core != (name == "") {
			continue
		}
		g := discovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, version := range versions(kinds[name]) {
			d := discovery.APIVersionDiscovery{Version: version, Freshness: discovery.DiscoveryFreshnessCurrent}
			for i := range kinds[name] {
				if k := &kinds[name][i]; k.apiVersion == version {
					d.Resources = append(d.Resources, k.discovery())
				}
			}
			g.Versions = append(g.Versions, d)
		}
		list.Items = append(list.Items, g)
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	writeBody(w, list)
}

func (s *served) discovery() discovery.APIResourceDiscovery {
	scope := discovery.ScopeCluster
	if s.namespaced {
		scope = discovery.ScopeNamespace
	}
	return discovery.APIResourceDiscovery{
		Resource: s.plural,
		ResponseKind: &metav1.GroupVersionKind{
			Group:   s.group,
			Version: s.apiVersion,
			Kind:    s.name,
		},
		Scope:            scope,
		SingularResource: s.singular,
		Verbs:            s.verbs,
		ShortNames:       s.shortNames,
		Categories:       s.categories,
	}
}
