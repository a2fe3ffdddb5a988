package admin

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/pause"
)

// MaxProfile limits the duration of a profile.
const MaxProfile = 5 * time.Minute

// serveProfiles serves the profiles of 'go tool pprof' and 'go tool trace'. Profiles expose memory,
// so mux must belong to the socket. (Importing net/http/pprof would also serve them at
// http.DefaultServeMux.)
func serveProfiles(mux *http.ServeMux) {
	for path, h := range map[string]http.HandlerFunc{
		"{$}": listProfiles, "{name}": namedProfile, "profile": cpuProfile, "trace": executionTrace,
	} {
		mux.Handle("GET /debug/pprof/"+path, h)
	}
}

func listProfiles(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	names := []string{"profile", "trace"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	fmt.Fprintln(w, strings.Join(names, "\n"))
}

// namedProfile serves a profile of runtime/pprof; debug=1 is for people.
func namedProfile(w http.ResponseWriter, r *http.Request) {
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		http.Error(w, "no such profile; /debug/pprof/ lists them", http.StatusNotFound)
		return
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err != nil || debug <= 0 {
		debug = 0
		binary(w, p.Name())
	} else {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	_ = p.WriteTo(w, debug) // the client may have disconnected
}

func cpuProfile(w http.ResponseWriter, r *http.Request) {
	span, err := seconds(r, 30*time.Second)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	binary(w, "profile")
	if err := pprof.StartCPUProfile(w); err != nil {
		w.Header().Del("Content-Disposition")
		http.Error(w, "another profile is being taken", http.StatusConflict)
		return
	}
	_ = pause.For(r.Context(), span)
	pprof.StopCPUProfile()
}

func executionTrace(w http.ResponseWriter, r *http.Request) {
	span, err := seconds(r, time.Second)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	binary(w, "trace")
	if err := trace.Start(w); err != nil {
		w.Header().Del("Content-Disposition")
		http.Error(w, "another trace is being taken", http.StatusConflict)
		return
	}
	_ = pause.For(r.Context(), span)
	trace.Stop()
}

func binary(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// seconds returns the parameter seconds.
func seconds(r *http.Request, unset time.Duration) (time.Duration, error) {
	text := r.FormValue("seconds")
	if text == "" {
		return unset, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) || n > MaxProfile.Seconds() {
		return 0, fmt.Errorf("seconds: must be above 0 and at most %v, got %q", MaxProfile.Seconds(), text)
	}
	return time.Duration(n * float64(time.Second)), nil
}
