package apiview

import (
	"crypto/subtle"
	"io"
	"net/http"
	"slices"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxReview bounds the body of an access review, in bytes.
const maxReview = 64 << 10

// serveReview answers what a client may do: it may read everything, and write nothing. It returns
// false if the path is that of no review.
func (v *View) serveReview(w http.ResponseWriter, r *http.Request, path []string) (bool, error) {
	kinds := reviews()
	i := slices.IndexFunc(kinds, func(k kind) bool {
		return slices.Equal(path, []string{"apis", k.group, k.apiVersion, k.plural})
	})
	if i < 0 {
		return false, nil
	}
	k := &kinds[i]
	typed := schema.GroupVersionKind{Group: k.group, Version: k.apiVersion, Kind: k.name}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		return true, failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "%v", err)
	}
	review, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, &typed, nil) // JSON or protobuf
	if err != nil {
		return true, failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: application/json, application/vnd.kubernetes.protobuf")
	}
	switch review := review.(type) {
	case *authorization.SelfSubjectAccessReview:
		review.Status = allowed(&review.Spec)
	case *authorization.SelfSubjectRulesReview:
		review.Status = authorization.SubjectRulesReviewStatus{
			ResourceRules: []authorization.ResourceRule{{Verbs: readVerbs(), APIGroups: []string{
				"*",
			}, Resources: []string{"*"}}},
			NonResourceRules: []authorization.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"*"}}},
		}
	case *authentication.SelfSubjectReview:
		review.Status.UserInfo = user()
	case *authentication.TokenReview:
		review.Status = tokenStatus(review.Spec.Token, r)
	default:
		return true, badRequest("want a %s", k.name)
	}
	review.GetObjectKind().SetGroupVersionKind(typed)
	writeJSON(w, http.StatusCreated, review)
	return true, nil
}

// user returns the only user of the API.
func user() authentication.UserInfo { return authentication.UserInfo{Username: "kubecdc"} }

// tokenStatus says whose a token is. The token of the request is known to be right.
func tokenStatus(token string, r *http.Request) authentication.TokenReviewStatus {
	own := r.Header.Get("Authorization")
	if subtle.ConstantTimeCompare([]byte(own), []byte("Bearer "+token)) != 1 {
		return authentication.TokenReviewStatus{Error: "the past knows only the token of this server"}
	}
	return authentication.TokenReviewStatus{Authenticated: true, User: user()}
}

func allowed(s *authorization.SelfSubjectAccessReviewSpec) authorization.SubjectAccessReviewStatus {
	verb := ""
	if a := s.ResourceAttributes; a != nil {
		if a.Subresource != "" && a.Subresource != "status" {
			return authorization.SubjectAccessReviewStatus{
				Reason: "the record has no " + a.Subresource + " of " + a.Resource,
			}
		}
		verb = a.Verb
	} else if a := s.NonResourceAttributes; a != nil {
		verb = a.Verb
	}
	if slices.Contains(readVerbs(), verb) {
		return authorization.SubjectAccessReviewStatus{Allowed: true}
	}
	return authorization.SubjectAccessReviewStatus{Reason: "the past is read-only"}
}
