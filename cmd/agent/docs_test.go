package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shownBlock  = regexp.MustCompile("(?ms)^ *```(sh|text)\n(.*?)^ *```$")
	shownInline = regexp.MustCompile("`([^`\n]*)`")
	// A command follows the beginning of a line, a prompt, another command, `kubectl exec … --`, or
	// a folder.
	shownCommand = regexp.MustCompile(`(?:^|\$ |[|;&] |-- /|bin/)kubecdc((?: (?:[^\s|<>#;&"'()]+|"[^"]*"|'[^']*'))+)`)
	argument     = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
)

// TestCommandsOfTheDocumentation parses all kubecdc command lines that documents show. Their
// commands and flags have to exist, and in blocks of sh the arguments have to be complete. walk
// `TestDocumentedCommands` runs most of them.
func TestCommandsOfTheDocumentation(t *testing.T) {
	checked := 0
	check := func(file, line string, whole bool) {
		for _, m := range shownCommand.FindAllStringSubmatch(line, -1) {
			var args []string
			for _, arg := range argument.FindAllString(m[1], -1) {
				isOptional := strings.HasPrefix(arg, "[") || strings.Contains(arg, "…") // what may be left out
				if !isOptional {
					args = append(args, strings.Trim(arg, `"'`))
				}
			}
			cmd, rest, err := newRoot(io.Discard, io.Discard).Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && (whole || cmd.HasSubCommands() && cmd.Flags().NArg() > 0) {
				// of a command with subcommands, an argument is an unknown subcommand
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: kubecdc %s: %v", file, strings.Join(args, " "), err)
			}
			checked++
		}
	}
	for _, tree := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "docs", "charts", "examples"} {
		err := filepath.WalkDir(filepath.Join("..", "..", tree), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".md") || strings.Contains(file, "/decisions/") {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			page := strings.ReplaceAll(string(text), "\\\n", " ")
			for _, block := range shownBlock.FindAllStringSubmatch(page, -1) {
				for line := range strings.Lines(block[2]) {
					line = strings.TrimSpace(line)
					if block[1] == "sh" || strings.HasPrefix(line, "$ ") {
						check(file, line, true)
					}
				}
			}
			for _, code := range shownInline.FindAllStringSubmatch(shownBlock.ReplaceAllString(page, ""), -1) {
				check(file, code[1], false)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 100 {
		t.Errorf("%d commands: the test shows nothing", checked)
	}
}
