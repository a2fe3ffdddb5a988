package apiview

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// isRelease reports whether a redacted object is a release that Helm stores, in a Secret or, with
// its other driver, in a ConfigMap.
func isRelease(v *timeline.Version) bool {
	if v.Resource != "secrets" {
		return v.Resource == "configmaps" && isReleaseName(v.Name)
	}
	var o struct{ Type any }
	_ = json.Unmarshal(v.After, &o) // impossible to fail: it came from JSON
	return o.Type == "helm.sh/release.v1"
}

// isReleaseName reports whether a Secret or ConfigMap has the name of a release of Helm.
func isReleaseName(name string) bool { return strings.HasPrefix(name, "sh.helm.release.v1.") }

// noteRedacted adds a warning to an answer that has redacted objects. It returns an error if Helm
// asks for its releases: Helm leaves out those that it cannot read, and shows none.
func (r *resource) noteRedacted(w http.ResponseWriter, request *http.Request, objects iter.Seq[*object.Object]) error {
	if len(r.redacted) == 0 {
		return nil
	}
	has := false
	for o := range objects {
		release, redacted := r.redacted[o]
		if release && strings.HasPrefix(request.UserAgent(), "Helm/") {
			return errNoRelease()
		}
		has = has || redacted
	}
	if has {
		warn(w, r.String()+": some objects have redacted values, which are missing or replaced by hashes")
	}
	return nil
}

// ForColumns returns the object of a version for the function that Columns returns. A Secret from
// which nothing was removed has data there, if only an empty one.
func ForColumns(v *timeline.Version) []byte {
	if v.Resource != "secrets" || v.Redacted() {
		return v.After
	}
	return withData(v.After)
}

// forColumns is ForColumns for the JSON of an object that is served. If any version of a Secret is
// redacted, it takes all of them for redacted.
func (r *resource) forColumns(body []byte) []byte {
	if r.String() != "secrets" {
		return body
	}
	var o metav1.PartialObjectMetadata
	if json.Unmarshal(body, &o) != nil || r.redactedUIDs()[string(o.UID)] {
		return body
	}
	return withData(body)
}

// withData returns an object with an empty data, to which a decoder adds the one that it may have.
func withData(body []byte) []byte {
	return append([]byte(`{"data":{},`), bytes.TrimPrefix(body, []byte("{"))...)
}

// errNoRelease is the answer to Helm. Another code than 404: Helm takes that for no release.
func errNoRelease() error {
	return failure(http.StatusGone, metav1.StatusReasonGone, "the record has no content of Helm's releases: the agent "+
		"redacts Secrets. With redaction.secrets: false in its configuration, it records them from then on, and everybody who "+
		"reads the bus can read all Secrets. kubectl get all -l app.kubernetes.io/instance=RELEASE shows the objects of a release")
}

// warn adds a warning that clients show to people.
func warn(w http.ResponseWriter, text string) {
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
		w.Header().Add("Warning", header)
	}
}
