package apiview

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/object"
)

// serveObject answers with one object.
func (v *View) serveObject(w http.ResponseWriter, r *http.Request, res *resource, namespace, name string) error {
	f, err := accepted(r, ofObjects)
	if err != nil {
		return err
	}
	l := v.list(res)
	if err := l.checkVersion(res, r.URL.Query()); err != nil {
		return err
	}
	key := res.key(namespace, name)
	o := l.find(key)
	if o == nil && res.lost[key] {
		return failure(http.StatusGone, metav1.StatusReasonGone,
			"%s %q existed, but its content is not in the record", res, name)
	}
	if o == nil {
		return apierrors.NewNotFound(res.groupResource(), name)
	}
	if err := res.noteRedacted(w, r, slices.Values([]*object.Object{o})); err != nil {
		return err
	}
	body, err := o.AppendJSON(nil)
	if err != nil {
		return err
	}
	a, err := v.newAnswer(f, res, r.URL.Query())
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if a.table != nil {
		a.table.writeHead(&b, &metav1.ListMeta{ResourceVersion: object.FormatVersion(o.ResourceVersion)})
		err = a.append(&b, body)
		a.table.writeEnd(&b)
	} else {
		err = a.append(&b, body)
	}
	if err != nil {
		return err
	}
	return f.write(w, b.Bytes())
}

// serveList answers with the objects of a resource, page by page if the client asks for it.
func (v *View) serveList(w http.ResponseWriter, r *http.Request, res *resource, namespace string) error {
	f, err := accepted(r, ofObjects)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	s, err := newSelector(res, namespace, "", query)
	if err != nil {
		return err
	}
	p, err := v.newPage(res, query)
	if err != nil {
		return err
	}
	a, err := v.newAnswer(f, res, query)
	if err != nil {
		return err
	}
	found, err := p.fill(s)
	if err != nil {
		return err
	}
	if err := res.noteRedacted(w, r, slices.Values(found)); err != nil {
		return err
	}
	if f.yaml {
		var b bytes.Buffer
		if err := a.write(&b, &p.meta, found); err != nil {
			return err
		}
		return f.write(w, b.Bytes())
	}
	w.Header().Set("Content-Type", "application/json")
	sent := &counter{w: w}
	b := bufio.NewWriterSize(sent, 64<<10)
	if err := a.write(b, &p.meta, found); err != nil {
		if sent.n > 0 {
			// The client must not take the part for the list: net/http ends the connection.
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http asks for it
		}
		return err
	}
	_ = b.Flush() // the client has gone
	return nil
}

// counter counts the bytes that are written to w.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

// page is a part of a list.
type page struct {
	meta  metav1.ListMeta
	list  *list
	again int64  // as position.Again
	limit int    // 0: none
	after string // keys before it have been sent
}

// position is a continue token, as the API server makes them.
type position struct {
	Version         string `json:"v"`
	ResourceVersion uint64 `json:"rv"`
	Start           string `json:"start"`
	// Again is View.again in ms since 1970. A view that was read again may have other objects at
	// the same resourceVersion, so no list begins in one and ends in the other.
	Again int64 `json:"again,omitempty"`
}

const positionVersion = "meta.k8s.io/v1"

func (v *View) newPage(res *resource, query url.Values) (*page, error) {
	l := v.list(res)
	p := &page{meta: metav1.ListMeta{ResourceVersion: object.FormatVersion(l.version)}, list: l}
	if !v.again.IsZero() {
		p.again = v.again.UnixMilli()
	}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, badRequest("%v", err)
		}
		p.limit = int(max(limit, 0))
	}
	token := query.Get("continue")
	if token == "" {
		return p, l.checkVersion(res, query)
	}
	if rv := query.Get("resourceVersion"); rv != "" && rv != "0" {
		return nil, badRequest("specifying resource version is not allowed when using continue")
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	var at position
	if err == nil {
		err = json.Unmarshal(raw, &at)
	}
	if err != nil {
		return nil, badRequest("invalid continue token: continue key is not valid: %v", err)
	}
	if at.Version != positionVersion || !strings.HasPrefix(at.Start, res.content.name+"/") {
		return nil, badRequest("invalid continue token: continue key is not valid: of another API")
	}
	p.list = res.listAt(at.ResourceVersion, l.shown)
	if p.list == nil || at.Again != p.again {
		return nil,
			errOtherVersion("The provided continue parameter is of another moment: start a new list without it.")
	}
	p.after, p.meta.ResourceVersion = at.Start, object.FormatVersion(at.ResourceVersion)
	return p, nil
}

// fill returns the JSON of the objects of the page, and completes its metadata.
func (p *page) fill(s *selector) ([]*object.Object, error) {
	objects := p.list.objects
	if p.after != "" {
		from, _ := p.list.index(p.after)
		objects = objects[from:]
	}
	var found []*object.Object
	var body []byte
	for i, o := range objects {
		if !s.isPlaced(o) {
			continue
		}
		if !s.takesAll() {
			var err error
			body, err = o.AppendJSON(body[:0])
			if err != nil {
				return nil, err
			}
			if !s.takes(o, body) {
				continue
			}
		}
		if p.limit > 0 && len(found) == p.limit {
			last := found[len(found)-1]
			raw, err := json.Marshal(position{positionVersion, p.list.version, last.Ref.Key + "\x00", p.again})
			if err != nil {
				return nil, err
			}
			p.meta.Continue = base64.RawURLEncoding.EncodeToString(raw)
			if s.takesAll() {
				rest := int64(0)
				for _, o := range objects[i:] {
					if s.isPlaced(o) {
						rest++
					}
				}
				p.meta.RemainingItemCount = &rest
			}
			break
		}
		found = append(found, o)
	}
	return found, nil
}

// checkVersion returns an error if the client asks for a resourceVersion that the view does not
// have.
func (l *list) checkVersion(r *resource, query url.Values) error {
	text, match := query.Get("resourceVersion"), query.Get("resourceVersionMatch")
	if match != "" && text == "" && !isTrue(query, "watch") {
		return invalidMatch("Forbidden", "resourceVersionMatch is forbidden unless resourceVersion is provided")
	}
	if match != "" && match != "Exact" && match != "NotOlderThan" {
		return invalidMatch("NotSupported", `supported values: "Exact", "NotOlderThan"`)
	}
	if text == "" {
		return nil
	}
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return badRequest("invalid resource version: resourceVersion: Invalid value: %q: %v", text, err)
	}
	switch {
	case rv > l.version:
		return &versionError{errTooLarge(rv, l.version)}
	case match == "Exact" && rv == 0:
		return invalidMatch("Forbidden", `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)
	case match == "Exact" && rv < l.version:
		return errOtherVersion(
			"the view of this moment has resourceVersion %d of %s and no other: ask for the moment rv:%d", l.version, r,
			rv)
	}
	return nil
}

func invalidMatch(kind, text string) error {
	return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
		`ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: %s: %s`,
		kind, text)
}

// isTrue returns the value of a parameter as kube-apiserver reads it: true, unless it is absent, 0
// or a form of false.
func isTrue(query url.Values, name string) bool {
	text := query.Get(name)
	return query.Has(name) && text != "0" && !strings.EqualFold(text, "false")
}
