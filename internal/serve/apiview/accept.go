package apiview

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// form is the form of an answer that a client asked for.
type form struct {
	// "": objects as they are; Table, PartialObjectMetadata, PartialObjectMetadataList,
	// APIGroupDiscoveryList
	as      string
	group   string
	version string
	yaml    bool // not JSON
}

// accepted returns the first form that the client accepts: JSON as it is, or a form that allow
// accepts.
func accepted(r *http.Request, allow func(form) bool) (form, error) {
	type clause struct {
		form
		q float64
	}
	var clauses []clause
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		header = "*/*"
	}
	for part := range strings.SplitSeq(header, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil ||
			!slices.Contains([]string{"application/json", "application/yaml", "application/*", "*/*"}, kind) {
			continue
		}
		f := form{params["as"], params["g"], params["v"], kind == "application/yaml"}
		if (f.as != "" || f.yaml) && !allow(f) {
			continue
		}
		q := 1.0
		if n, err := strconv.ParseFloat(params["q"], 64); err == nil {
			q = n
		}
		if f.as == "" {
			f = form{yaml: f.yaml}
		}
		clauses = append(clauses, clause{f, q})
	}
	slices.SortStableFunc(clauses, func(a, b clause) int {
		switch {
		case a.q > b.q:
			return -1
		case a.q < b.q:
			return 1
		}
		return 0
	})
	if len(clauses) == 0 || clauses[0].q <= 0 {
		types := "application/json"
		if allow(form{yaml: true}) {
			types += ", application/yaml"
		}
		return form{},
			failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
				"only the following media types are accepted: %s", types)
	}
	return clauses[0].form, nil
}

// ofObjects reports whether objects can be answered in a form.
func ofObjects(f form) bool { return f == form{yaml: true} || ofEvents(f) }

// ofEvents reports whether the objects of a watch can be answered in a form.
func ofEvents(f form) bool {
	if f.yaml || f.group != "meta.k8s.io" || f.version != "v1" && f.version != "v1beta1" {
		return false
	}
	return slices.Contains([]string{"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}, f.as)
}

// ofDiscovery reports whether a form is that of aggregated discovery.
func ofDiscovery(f form) bool {
	return f == form{as: "APIGroupDiscoveryList", group: "apidiscovery.k8s.io", version: "v2"}
}
