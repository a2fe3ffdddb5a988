package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManCommand is for packagers: hidden, and small enough to be in every binary. The reason for
// not using cobra/doc is in docs/decisions/0009-man-pages.md.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Hidden: true,
		Short:  "Write the manual pages",
		Long:   "Write the manual pages, one for each command, into a directory, which is created if it does not exist.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("man: name one directory")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for _, c := range commands(cmd.Root()) {
				file := filepath.Join(args[0], pageName(c)+".1")
				if err := os.WriteFile(file, manPage(c), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// commands returns cmd and the visible commands below it.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, commands(c)...)
		}
	}
	return all
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns a page in the macros that both groff and mandoc support (man(7)).
func manPage(c *cobra.Command) []byte {
	p := &page{}
	p.writeMacro("TH", strings.ToUpper(pageName(c)), "1", "", "kubecdc "+version, "kubecdc manual")
	p.writeMacro("SH", "NAME")
	p.writeText(pageName(c) + " - " + strings.ToLower(c.Short[:1]) + c.Short[1:])
	p.writeMacro("SH", "SYNOPSIS")
	p.writeMacro("B", c.UseLine())
	p.writeMacro("SH", "DESCRIPTION")
	description := c.Long
	if description == "" {
		description = c.Short + "."
	}
	p.writeParagraphs(description)
	if below := commands(c)[1:]; len(below) > 0 {
		p.writeMacro("SH", "COMMANDS")
		for _, b := range below {
			if b.Parent() == c {
				p.writeMacro("TP")
				p.writeMacro("BR", pageName(b), "(1)")
				p.writeText(b.Short)
			}
		}
	}
	p.writeOptions(c.LocalFlags())
	if c.Example != "" {
		p.writeMacro("SH", "EXAMPLES")
		p.writeVerbatim(c.Example)
	}
	p.writeSeeAlso(c)
	return []byte(p.String())
}

// page is a page in roff.
type page struct {
	strings.Builder

	last string // the last macro; "" after text
}

// writeMacro writes a request with quoted arguments.
func (p *page) writeMacro(name string, args ...string) {
	if name == "PP" && p.last == "SH" {
		return // a section already starts a paragraph
	}
	p.last = name
	p.WriteString("." + name)
	for _, a := range args {
		p.WriteString(` "` + strings.ReplaceAll(roff(a), `"`, `\(dq`) + `"`)
	}
	p.WriteByte('\n')
}

// writeText writes filled lines. It escapes a line that looks like a request.
func (p *page) writeText(s string) {
	p.last = ""
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			p.WriteString(`\&`)
		}
		p.WriteString(roff(line) + "\n")
	}
}

// writeParagraphs writes text with blank lines between its paragraphs. A paragraph that is indented
// by two spaces is written verbatim.
func (p *page) writeParagraphs(s string) {
	for block := range strings.SplitSeq(strings.TrimSpace(s), "\n\n") {
		if strings.HasPrefix(block, "  ") {
			p.writeVerbatim(block)
			continue
		}
		p.writeMacro("PP")
		p.writeText(block)
	}
}

func (p *page) writeVerbatim(s string) {
	p.writeMacro("PP")
	p.writeMacro("EX")
	p.writeText(s)
	p.writeMacro("EE")
}

func (p *page) writeOptions(flags *pflag.FlagSet) {
	begun := false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if !begun {
			p.writeMacro("SH", "OPTIONS")
			begun = true
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		p.writeMacro("TP")
		if value == "" {
			p.writeMacro("B", name)
		} else {
			p.writeMacro("BI", name+" ", value)
		}
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			usage += " (default " + f.DefValue + ")"
		}
		p.writeText(usage)
	})
}

func (p *page) writeSeeAlso(c *cobra.Command) {
	var names []string
	if c.HasParent() {
		names = append(names, pageName(c.Parent()))
		for _, sibling := range commands(c.Parent())[1:] {
			if sibling.Parent() == c.Parent() && sibling != c {
				names = append(names, pageName(sibling))
			}
		}
	}
	for i, name := range names {
		if i == 0 {
			p.writeMacro("SH", "SEE ALSO")
		}
		end := "(1),"
		if i == len(names)-1 {
			end = "(1)"
		}
		p.writeMacro("BR", name, end)
	}
}

// roff escapes characters with a meaning in roff, and all outside of ASCII, because the reader may
// have any locale.
func roff(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-', r == '\'', r == '`', r == '^', r == '~':
			b.WriteString(map[rune]string{'-': `\-`, '\'': `\(aq`, '`': `\(ga`, '^': `\(ha`, '~': `\(ti`}[r])
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
