package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() { os.Exit(run("..", os.Args[1:], os.Stdout, os.Stderr)) }

func run(root string, args []string, stdout, stderr io.Writer) int {
	found, err := check(root, args)
	if err != nil {
		fmt.Fprintln(stderr, "prose:", err)
		return 2
	}
	for _, f := range found {
		fmt.Fprintln(stdout, f)
	}
	if len(found) > 0 {
		fmt.Fprintf(stderr, "prose: %d findings in %s\n", len(found), args[0])
		return 1
	}
	return 0
}

func check(root string, args []string) ([]finding, error) {
	if len(args) == 0 {
		return nil, errors.New("say what to check: docs, help, chart, messages, or comments with packages")
	}
	var files []string
	var read func(name string, text []byte) ([]block, error)
	var err error
	switch args[0] {
	case "docs":
		files, err = documents(root, args[1:])
		read = func(_ string, text []byte) ([]block, error) {
			if generated.Match(text) {
				return nil, nil
			}
			return markdown(text), nil
		}
	case "help":
		files, err = goFiles(root, "cmd/agent")
		files = slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
		references, docsErr := documents(root, []string{"docs"})
		files, err = append(files, references...), errors.Join(err, docsErr)
		read = help
	case "chart":
		files, err = walk(root, []string{"charts", "configs"}, func(path string) bool {
			return chartFile.MatchString(path)
		})
		read = chart
	case "messages":
		files, err = walk(root, []string{"cmd", "internal", "pkg"}, func(path string) bool {
			return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		})
		read = messages
	case "comments":
		for _, dir := range args[1:] {
			list, dirErr := goFiles(root, dir)
			files, err = append(files, list...), errors.Join(err, dirErr)
		}
		read = comments
	default:
		err = fmt.Errorf("unknown subject %q: use docs, help, chart, messages or comments", args[0])
	}
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		blocks, err := read(file, text)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			found = append(found, b.check(file)...)
		}
	}
	return found, nil
}

// chartFile matches the files of the chart with sentences.
var chartFile = regexp.MustCompile(`\.(?:md|gotmpl|txt|yaml|tpl)$`)

// generated matches a reference that is made from help texts and comments.
var generated = regexp.MustCompile(`^<!-- (?:Made|Written) by `)

// help returns the texts of commands, and the references that are made from the help of
// configuration keys and metrics.
func help(name string, text []byte) ([]block, error) {
	switch {
	case strings.HasSuffix(name, ".go"):
		return helpTexts(name, text)
	case generated.Match(text):
		return markdown(text), nil
	}
	return nil, nil
}

// documents returns the Markdown files of the repository, or those of the given files and
// directories.
func documents(root string, only []string) ([]string, error) {
	if len(only) == 0 {
		only = []string{"README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "docs", "examples"}
	}
	return walk(root, only, func(path string) bool {
		return strings.HasSuffix(path, ".md") && !strings.Contains(path, "node_modules")
	})
}

// goFiles returns the Go files of one directory.
func goFiles(root, dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

func walk(root string, paths []string, want func(string) bool) ([]string, error) {
	var files []string
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(root, path), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !want(path) {
				return err
			}
			rel, err := filepath.Rel(root, path)
			files = append(files, rel)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(files)
	return files, nil
}
