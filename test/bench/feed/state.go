package feed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// state holds the ConfigMaps and Leases of agents: checkpoints and leadership. It has optimistic
// locking, on which agents rely.
type state struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	version uint64
}

func (s *state) create(w http.ResponseWriter, r *http.Request) {
	object, meta, err := decode(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	name, _ := meta["name"].(string)
	path := r.URL.Path + "/" + name
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[path] != nil || name == "" {
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, path+" already exists")
		return
	}
	meta["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", s.version)
	meta["namespace"] = r.PathValue("namespace")
	s.put(w, http.StatusCreated, path, object, meta)
}

func (s *state) read(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[r.URL.Path]
	if object == nil {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" not found")
		return
	}
	reply(w, http.StatusOK, object)
}

func (s *state) update(w http.ResponseWriter, r *http.Request) {
	object, meta, err := decode(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[r.URL.Path]
	if old == nil {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" not found")
		return
	}
	was, _ := old["metadata"].(map[string]any)
	if v := meta["resourceVersion"]; v != nil && v != "" && v != was["resourceVersion"] {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, r.URL.Path+": the object has been modified")
		return
	}
	meta["uid"] = was["uid"]
	s.put(w, http.StatusOK, r.URL.Path, object, meta)
}

func (s *state) remove(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, r.URL.Path)
	reply(w, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
	})
}

// put must be called with the lock held.
func (s *state) put(w http.ResponseWriter, code int, path string, object, meta map[string]any) {
	s.version++
	meta["resourceVersion"] = strconv.FormatUint(s.version, 10)
	s.objects[path] = object
	reply(w, code, object)
}

func decode(r *http.Request) (object, meta map[string]any, err error) {
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		return nil, nil, err
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("%s without metadata", r.URL.Path)
	}
	return object, meta, nil
}
