package kinds

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Word is what a user writes for a resource, or for some of its objects, as for kubectl get.
type Word struct {
	Text    string   // in lower case: "deploy", "deployments.v1.apps", "all", "*"
	Name    string   // plural, singular, kind or short name: "deploy"
	Version string   // "": any
	Group   string   // "": any
	Names   []string // of objects, or patterns; nil: all
}

// IsAll reports whether the word stands for all resources.
func (w *Word) IsAll() bool { return w.Text == "all" || w.Text == "*" }

// WordError is the error of an argument that names no resource and no object.
type WordError struct {
	Arg string
	Err error
}

func (e *WordError) Error() string {
	return fmt.Sprintf("%q: %v (as for kubectl: pods, deploy/web, deployments.apps, pods,services, po web-0 web-1)",
		e.Arg, e.Err)
}

func (e *WordError) Unwrap() error { return e.Err }

// ReadWords parses arguments like those of kubectl get: RESOURCE[,RESOURCE…] [NAME…] or
// RESOURCE/NAME…. It does not look the resources up.
func ReadWords(args []string) ([]Word, error) {
	var out []Word
	slashes := slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "/") })
	for k, arg := range args {
		if k > 0 && !slashes { // RESOURCE NAME NAME…
			break
		}
		for part := range strings.SplitSeq(arg, ",") {
			w, err := readWord(part, slashes && len(args) > 1)
			if err != nil {
				return nil, &WordError{arg, err}
			}
			out = append(out, w)
		}
	}
	if len(args) < 2 || slashes {
		return out, nil
	}
	for k := range out {
		out[k].Names = args[1:]
	}
	for _, name := range args[1:] {
		if err := CheckPattern(name); err != nil || name == "" {
			return nil, fmt.Errorf("%q: want an object's name, * and ? allowed", name)
		}
	}
	return out, nil
}

// readWord parses RESOURCE or RESOURCE/NAME.
func readWord(text string, mustName bool) (Word, error) {
	resource, name, named := strings.Cut(text, "/")
	w, err := readResource(resource)
	switch {
	case err != nil:
		return w, err
	case named && name == "" || strings.Contains(name, "/"):
		return w, errors.New("want one name after the slash; the namespace goes to --namespace")
	case mustName && !named:
		return w, errors.New("RESOURCE/NAME and RESOURCE NAME cannot be combined")
	case named:
		w.Names = []string{name}
	}
	return w, CheckPattern(name)
}

func readResource(text string) (Word, error) {
	plain := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?$`)
	version := regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
	w := Word{Text: strings.ToLower(strings.TrimSpace(text))} // kubectl accepts Pods and PODS, too
	if w.IsAll() {
		return w, nil
	}
	if !plain.MatchString(w.Text) {
		return w, errors.New("want a resource")
	}
	w.Name, w.Group, _ = strings.Cut(strings.TrimSuffix(w.Text, "."), ".")
	if v, rest, _ := strings.Cut(w.Group, "."); version.MatchString(v) {
		w.Version, w.Group = v, rest
	}
	return w, nil
}

// CheckPattern returns an error unless a text is a name, or a pattern that package path matches.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return errors.New("want a name, or a pattern with * ? [a-z]")
	}
	return nil
}
