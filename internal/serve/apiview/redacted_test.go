package apiview_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// releases is a record with releases of Helm, whose content the agent has removed or hashed, and
// with other objects.
func releases(kept string) *record {
	r := &record{}
	const name = "sh.helm.release.v1.web.v1"
	secret := func(name, rest string) string {
		return objectJSON("Secret", "shop", name, `"type":"helm.sh/release.v1"`+rest)
	}
	r.resource("v1", "secrets", secret(name, kept),
		secret("sh.helm.release.v1.web.v2", `,"data":{"release":"hmac-sha256:0a1b2c3d:abc"}`),
		objectJSON("Secret", "other", "open", `"type":"Opaque","data":{"a":"YQ=="}`))
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", name, `"data":{}`),
		objectJSON("ConfigMap", "other", "cm", `"data":{"a":"b"}`))
	r.resource("apps/v1", "deployments",
		objectJSON("Deployment", "shop", "web",
			`"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"P","value":"hmac-sha256:0a1b2c3d:abc"}]}]}}}`))
	return r
}

// Each answer with redacted objects has one warning that says so, short enough for an API server.
// An answer without them has none.
func TestRedactedObjectsAreWarnedAbout(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: releases("").view(), Token: token}
	const warning = `some objects have redacted values, which are missing or replaced by hashes"`
	for path, want := range map[string]string{
		"/api/v1/secrets": `299 - "secrets: ` + warning,
		"/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v1": `299 - "secrets: ` + warning,
		"/api/v1/secrets?limit=1":                                   "", // the first page has another one
		"/api/v1/secrets?watch=1&timeoutSeconds=1":                  `299 - "secrets: ` + warning,
		"/api/v1/namespaces/other/secrets?watch=1&timeoutSeconds=1": "",
		"/api/v1/namespaces/other/secrets/open":                     "",
		"/api/v1/secrets?fieldSelector=metadata.name%3Dopen":        "",
		"/api/v1/configmaps":                                        `299 - "configmaps: ` + warning,
		"/api/v1/namespaces/other/configmaps":                       "",
		"/apis/apps/v1/deployments":                                 `299 - "deployments.apps: ` + warning,
		"/api/v1":                                                   "",
	} {
		for _, accept := range []string{"application/json", asTable} {
			if path == "/api/v1" && accept == asTable {
				continue
			}
			w := ask(t.Context(), s, "GET", path, accept, "")
			got := w.Header().Values("Warning")
			if strings.Join(got, "\n") != want || utf8.RuneCountInString(want) > 256 || w.Code != 200 {
				t.Errorf("%s: %d, warnings %q, want %q", path, w.Code, got, want)
			}
		}
	}
}

// Helm gets an error instead of releases that it cannot read, because it would show none. Other
// clients see them.
func TestHelmIsToldThatReleasesAreRedacted(t *testing.T) {
	t.Parallel()
	whole := &record{}
	whole.resource("v1", "secrets",
		objectJSON("Secret", "shop", "sh.helm.release.v1.web.v1",
			`"type":"helm.sh/release.v1","data":{"release":"SDRz"}`),
		objectJSON("Secret", "shop", "hidden", `"type":"Opaque"`))
	redacted := releases("").view()
	for _, c := range []struct {
		view        *apiview.View
		agent, path string
		code        int
	}{
		{redacted, "Helm/4.3.1", "/api/v1/namespaces/shop/secrets?labelSelector=", 410},
		{redacted, "Helm/4.3.1", "/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v2", 410},
		{redacted, "Helm/4.3.1", "/api/v1/namespaces/shop/configmaps", 410},
		{redacted, "Helm/4.3.1", "/api/v1/secrets?watch=1&timeoutSeconds=1", 410},
		{redacted, "Helm/4.3.1", "/api/v1/namespaces/other/secrets", 200},
		{redacted, "Helm/4.3.1", "/apis/apps/v1/deployments", 200},
		{redacted, "kubectl/v1.37.1 (linux/amd64)", "/api/v1/namespaces/shop/secrets", 200},
		{whole.view(), "Helm/4.3.1", "/api/v1/namespaces/shop/secrets", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1"+c.path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("User-Agent", c.agent)
		w := httptest.NewRecorder()
		(&apiview.Server{Root: c.view, Token: token}).ServeHTTP(w, r)
		if w.Code != c.code || (w.Code == 410) != strings.Contains(w.Body.String(), "redaction.secrets: false") {
			t.Errorf("%s %s: %d %s", c.agent, c.path, w.Code, w.Body)
		}
	}
}

// Columns that count values do not show a number if the record lacks values.
func TestColumnsOfRedactedValues(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: releases("").view(), Token: token}
	for path, want := range map[string]string{
		"/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v1":    "sh.helm.release.v1.web.v1 | helm.sh/release.v1 | <unknown> | 120m",
		"/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v2":    "sh.helm.release.v1.web.v2 | helm.sh/release.v1 | 1 | 120m",
		"/api/v1/namespaces/shop/configmaps/sh.helm.release.v1.web.v1": "sh.helm.release.v1.web.v1 | <unknown> | 120m",
		"/api/v1/namespaces/other/configmaps/cm":                       "cm | 1 | 120m",
	} {
		w := ask(t.Context(), s, "GET", path, asTable, "")
		if got := lines(t, w.Body.Bytes())[1]; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A Secret that never had a value, as its event says, causes no warning and shows no values. It is
// as it was in the cluster.
func TestSecretThatNeverHadAValue(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "secrets", objectJSON("Secret", "shop", "removed", `"type":"Opaque"`))
	r.object(consume.Created, "v1", "secrets",
		objectJSON("Secret", "other", "empty", `"type":"Opaque"`)).Data.Redacted = new(false)
	r.object(consume.Created, "v1", "secrets",
		objectJSON("Secret", "other", "full", `"type":"Opaque","data":{"a":"YQ=="}`)).Data.Redacted = new(false)
	r.object(consume.Created, "v1", "secrets",
		objectJSON("Secret", "more", "said", `"type":"Opaque"`)).Data.Redacted = new(true)
	s := &apiview.Server{Root: r.view(), Token: token}
	for path, want := range map[string]string{
		"/api/v1/namespaces/shop/secrets/removed": "removed | Opaque | <unknown> | 120m",
		"/api/v1/namespaces/more/secrets/said":    "said | Opaque | <unknown> | 120m",
		"/api/v1/namespaces/other/secrets/empty":  "empty | Opaque | 0 | 120m",
		"/api/v1/namespaces/other/secrets/full":   "full | Opaque | 1 | 120m",
	} {
		w := ask(t.Context(), s, "GET", path, asTable, "")
		if got := lines(t, w.Body.Bytes())[1]; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if isWarned := len(w.Header().Values("Warning")) > 0; isWarned != strings.Contains(want, "<unknown>") {
			t.Errorf("%s: warned %v", path, isWarned)
		}
	}
	w := ask(t.Context(), s, "GET", "/api/v1/namespaces/other/secrets", "application/json", "")
	if len(w.Header().Values("Warning")) > 0 || strings.Count(w.Body.String(), `"data"`) != 1 {
		t.Errorf("warnings %q, %s", w.Header().Values("Warning"), w.Body)
	}
}

// An object whose content the record does not have is not said to be missing in the cluster.
func TestObjectWithoutContentIsNotNotFound(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", "large", ""),
		objectJSON("ConfigMap", "shop", "small", ""))
	state := r.state(timeline.Now(start))
	for _, v := range state.Objects() {
		if v.Name == "large" {
			v.After = nil // a store of claims does not have it any more
		}
	}
	s := &apiview.Server{Root: apiview.NewView(state, apiview.Options{Now: start}), Token: token}
	for name, want := range map[string]string{
		"large": `410 Gone configmaps "large" existed, but its content is not in the record`,
		"small": "200",
		"none":  `404 NotFound configmaps "none" not found`,
	} {
		w := ask(t.Context(), s, "GET", "/api/v1/namespaces/shop/configmaps/"+name, "", "")
		got := fmt.Sprint(w.Code)
		if w.Code != 200 {
			var answer metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprint(w.Code, " ", answer.Reason, " ", answer.Message)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
